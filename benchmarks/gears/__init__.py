"""What the gears are worth: real coding turns in every gear, idle and under load."""
