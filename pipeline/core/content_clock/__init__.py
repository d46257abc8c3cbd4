"""What the clocks of nodes that logged the same events are off from each other, without any measurement of clocks."""
