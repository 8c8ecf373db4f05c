"""The neighbours of a site: what it lends them, borrows from them, and passes on (SC'07, section 4)."""
