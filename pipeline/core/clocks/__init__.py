"""One timeline: a node's clocks against the broker's, with bounds that are true."""
