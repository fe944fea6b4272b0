"""What may come together by bad luck or ill will, by topic. test_scenarios.py plays all of it."""
