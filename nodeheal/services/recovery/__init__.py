"""Steps of an incident's recovery, and what the pool lends them: slots, attempts, machines."""
