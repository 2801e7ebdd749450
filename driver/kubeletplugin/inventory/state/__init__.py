"""What the plugin knows of its node apart from the cards themselves: pieces of state, each with one meaning. Pure."""
