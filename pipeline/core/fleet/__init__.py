"""What a fleet went through: units, their time at risk, what failed on them, and what statistics say of it."""
