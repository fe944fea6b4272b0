"""The ports on AWS: DynamoDB, ECS, SSM, Step Functions, EventBridge, SNS and SQS. One file a port or a service."""
