"""Whether draws are to be relied on."""
