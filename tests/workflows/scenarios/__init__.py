"""What may come together by bad luck or ill will, by topic; guards/ has the guard that each is about."""
