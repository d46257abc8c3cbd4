"""Fleet statistics: what is told of units becomes days, days become reports."""
