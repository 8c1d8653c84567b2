"""Everything that makes a self-contained HTML file: templates, style, script, charts."""
