"""A template as the services get it: what it leaves to CloudFormation is filled in, as long as it can become."""

from dataclasses import dataclass
from typing import Any

from tests.infrastructure.synthesis import Resource, Template

_SUFFIX = "0123456789AB"  # what CloudFormation puts after a name that it makes
# Which property names a resource; the others get a name from CloudFormation, or only an id.
_NAMED_BY = {
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
    "AWS::Cognito::UserPoolDomain": "Domain",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::Events::EventBus": "Name",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Role": "RoleName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::SecretsManager::Secret": "Name",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
}
_ARNS = {
    "AWS::Cognito::UserPool": "arn:{partition}:cognito-idp:{region}:{account}:userpool/{region}_Aa1Bb2Cc3",
    "AWS::CloudWatch::Alarm": "arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}",
    "AWS::DynamoDB::Table": "arn:{partition}:dynamodb:{region}:{account}:table/{name}",
    "AWS::Events::EventBus": "arn:{partition}:events:{region}:{account}:event-bus/{name}",
    "AWS::Events::Rule": "arn:{partition}:events:{region}:{account}:rule/nodeheal/{name}",
    "AWS::IAM::ManagedPolicy": "arn:{partition}:iam::{account}:policy/{name}",
    "AWS::IAM::Role": "arn:{partition}:iam::{account}:role/{name}",
    "AWS::Lambda::Function": "arn:{partition}:lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "arn:{partition}:logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "arn:{partition}:s3:::{name}",
    "AWS::SNS::Topic": "arn:{partition}:sns:{region}:{account}:{name}",
    "AWS::SQS::Queue": "arn:{partition}:sqs:{region}:{account}:{name}",
    "AWS::SecretsManager::Secret": "arn:{partition}:secretsmanager:{region}:{account}:secret:{name}-AbCdEf",
    "AWS::StepFunctions::StateMachine": "arn:{partition}:states:{region}:{account}:stateMachine:{name}",
}
_REF_IS_ARN = {
    "AWS::IAM::ManagedPolicy",
    "AWS::SNS::Topic",
    "AWS::SecretsManager::Secret",
    "AWS::StepFunctions::StateMachine",
}
_IDS = {
    "AWS::ApiGatewayV2::Api": "a1b2c3d4e5",
    "AWS::ApiGatewayV2::Integration": "a1b2c3d",
    "AWS::AppConfig::Application": "abc1234",
    "AWS::AppConfig::ConfigurationProfile": "abc1234",
    "AWS::AppConfig::DeploymentStrategy": "abc1234",
    "AWS::AppConfig::Environment": "abc1234",
    "AWS::AppConfig::HostedConfigurationVersion": "1",
    "AWS::Cognito::UserPool": "ap-southeast-7_Aa1Bb2Cc3",
    "AWS::Cognito::UserPoolClient": "1example23456789",
}


@dataclass(frozen=True)
class Place:
    """Where a template is deployed. By default the longest name that a Region has."""

    partition: str = "aws"
    region: str = "ap-southeast-7"
    account: str = "111122223333"

    @property
    def pseudo(self) -> dict[str, str]:
        """CloudFormation's pseudo parameters."""
        suffix = "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"
        return {
            "AWS::Partition": self.partition,
            "AWS::Region": self.region,
            "AWS::AccountId": self.account,
            "AWS::URLSuffix": suffix,
        }


def filled(value: Any, template: Template, place: Place) -> Any:
    """The value with every intrinsic function in it evaluated. Raises KeyError for a kind that is not known here."""
    if isinstance(value, list):
        return [filled(inner, template, place) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(function, given)] = value.items()
        if function == "Ref":
            return place.pseudo.get(given) or _ref(given, template, place)
        if function == "Fn::GetAtt":
            return _attribute(given[0], given[1], template, place)
        if function == "Fn::Join":
            return str(given[0]).join(str(filled(part, template, place)) for part in given[1])
        if function == "Fn::Sub":
            return _substituted(given, place)
    return {key: filled(inner, template, place) for key, inner in value.items()}


def properties(template: Template, name: str, place: Place) -> dict[str, Any]:
    """What a resource's service is asked for."""
    found: dict[str, Any] = filled(template.resources[name].get("Properties", {}), template, place)
    return found


def name_of(logical_id: str, template: Template, place: Place) -> str:
    """What a resource is called: as the template says, or as CloudFormation makes it."""
    resource: Resource = template.resources[logical_id]
    given = resource.get("Properties", {}).get(_NAMED_BY.get(resource["Type"], ""))
    return str(filled(given, template, place)) if given else f"nodeheal-{logical_id}"[:51] + f"-{_SUFFIX}"


def _ref(logical_id: str, template: Template, place: Place) -> str:
    kind = template.resources[logical_id]["Type"]
    if kind in _IDS:
        return _IDS[kind]
    if kind in _REF_IS_ARN:
        return _arn(logical_id, template, place)
    name = name_of(logical_id, template, place)
    return f"https://sqs.{place.region}.amazonaws.com/{place.account}/{name}" if kind == "AWS::SQS::Queue" else name


def _attribute(logical_id: str, attribute: str, template: Template, place: Place) -> str:
    if attribute in ("Arn", "Id"):
        return _arn(logical_id, template, place)
    if attribute == "RoleId":
        return f"AROA{'X' * 17}"
    if attribute == "ApiEndpoint":
        return f"https://a1b2c3d4e5.execute-api.{place.region}.amazonaws.com"
    if attribute == "ProviderURL":
        return f"https://cognito-idp.{place.region}.amazonaws.com/{place.region}_Aa1Bb2Cc3"
    if attribute in ("Name", "QueueName", "TopicName"):
        return name_of(logical_id, template, place)
    raise KeyError(f"{logical_id}.{attribute}")


def _arn(logical_id: str, template: Template, place: Place) -> str:
    form = _ARNS[template.resources[logical_id]["Type"]]
    name = name_of(logical_id, template, place)
    return form.format(partition=place.partition, region=place.region, account=place.account, name=name)


def _substituted(text: str, place: Place) -> str:
    for name, value in place.pseudo.items():
        text = text.replace(f"${{{name}}}", value)
    return text
