"""What a fleet's training comes to under nodeheal, and under two others who keep the same fleet."""
