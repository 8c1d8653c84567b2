"""The verb site: static pages for a team, with the history of every case, made from one or several stores."""
