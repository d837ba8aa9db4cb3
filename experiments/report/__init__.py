"""The pages of the site, made from records when the site is built."""
