"""What Amazon Q Developer in chat applications takes as a custom notification.

From https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html: the fields, and which of them are
required. No others are taken here, so that a slip in a name is seen.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Content(Part):
    textType: Literal["client-markdown"] = "client-markdown"
    title: Text | None = None
    description: Text
    nextSteps: list[Text] = []
    keywords: list[Text] = []


class Metadata(Part):
    threadId: Text | None = None
    summary: Text | None = None
    eventType: Text | None = None
    relatedResources: list[Text] = []
    additionalContext: dict[str, str] = {}


class CustomNotification(Part):
    version: Literal["1.0"]
    source: Literal["custom"]
    id: Text | None = None
    content: Content
    metadata: Metadata | None = None
