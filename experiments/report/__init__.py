"""The pages of the site, made from records when it is built."""
