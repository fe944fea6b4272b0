"""wait_for_news: see nodeheal/services/recovery/wait_for_news.py."""

from lambdas.composition import ports, step
from nodeheal.contract.steps import StepRequest
from nodeheal.services.recovery.wait_for_news import wait_for_news

handler = step(StepRequest, lambda request: wait_for_news(request, ports()))
