"""Reading suite files: strictly, with templates filled in as far as is known, and lines for every error."""
