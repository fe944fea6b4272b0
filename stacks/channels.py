"""Creates what a channel needs in the account: a topic for a chat; a rule, an API destination and a connection for a
webhook.
"""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from nodeheal.contract import names
from nodeheal.contract.vocabulary import ChannelKind
from stacks.permission import for_this_account
from stacks.settings import ChannelSetting, Settings

# Where a kind posts to; a kind that is not here has its own `url` in the settings.
ADDRESSES = {ChannelKind.pagerduty: "https://events.pagerduty.com/v2/enqueue"}
PAGERDUTY_KEY = "routing_key"  # the field of the body in which PagerDuty expects it
# A person reads no faster, and PagerDuty throttles a sender above its limit. EventBridge keeps the rest in its queue.
A_SECOND = 2
RETRY_FOR = cdk.Duration.hours(24)  # EventBridge's maximum: a late alert is better than none


def deployed_channels(settings: Settings) -> str:
    """Return the channels in the form of the functions' environment and of the stack's outputs."""
    kinds = {names.EMAIL_CHANNEL: ChannelKind.email.value}
    kinds |= {name: channel.kind for name, channel in settings.channels.items()}
    return ",".join(f"{name}={kind}" for name, kind in kinds.items())


def chats_of(settings: Settings) -> tuple[str, ...]:
    """Return the channels that Amazon Q Developer reads from a topic."""
    return tuple(name for name, channel in settings.channels.items() if channel.kind == "chat")


def build_channels(scope: Construct, settings: Settings, bus: events.IEventBus, dead: sqs.IQueue) -> None:
    """Create everything that the channels of the settings need."""
    for name, channel in settings.channels.items():
        parts = Construct(scope, f"Channel-{name}")
        if channel.kind == "chat":
            sns.Topic(
                parts,
                "Topic",
                topic_name=f"{names.CHANNEL_TOPIC_PREFIX}{name}",
                display_name="nodeheal",
                enforce_ssl=True,
            )
        else:
            _webhook(parts, name, channel, bus, dead)


def _unread() -> events.Authorization:
    return events.Authorization.api_key("X-Client", cdk.SecretValue.unsafe_plain_text("nodeheal"))


def _webhook(scope: Construct, name: str, channel: ChannelSetting, bus: events.IEventBus, dead: sqs.IQueue) -> None:
    secret = cdk.SecretValue.secrets_manager(str(channel.secret_arn))
    is_pagerduty = channel.kind == "pagerduty"
    connection = events.Connection(
        scope,
        "Connection",
        connection_name=f"nodeheal-{name}",
        description=f"the secret of the channel {name}",
        # EventBridge requires a header with every connection. PagerDuty reads none: its key is in the body.
        authorization=_unread() if is_pagerduty else events.Authorization.api_key(channel.header, secret),
        body_parameters={PAGERDUTY_KEY: events.HttpParameter.from_secret(secret)} if is_pagerduty else None,
    )
    destination = events.ApiDestination(
        scope,
        "Destination",
        api_destination_name=f"nodeheal-{name}",
        description=f"the address of the channel {name}",
        connection=connection,
        endpoint=channel.url or ADDRESSES[ChannelKind(channel.kind)],
        http_method=events.HttpMethod.POST,
        rate_limit_per_second=A_SECOND,
    )
    # The target permits it to invoke this destination, and nothing else.
    role = iam.Role(scope, "Role", assumed_by=for_this_account("events.amazonaws.com"))
    events.Rule(
        scope,
        "Rule",
        description=f"Posts the notifications of the channel {name}",
        event_bus=bus,
        event_pattern=events.EventPattern(
            source=[names.CONTROL_SOURCE], detail_type=[names.CHANNEL_MESSAGE], detail={"channel": [name]}
        ),
        targets=[
            targets.ApiDestination(
                destination,
                event=events.RuleTargetInput.from_event_path("$.detail.message"),
                event_role=role,
                dead_letter_queue=dead,
                max_event_age=RETRY_FOR,
            )
        ],
    )
