"""The ports on AWS: DynamoDB, SSM, Step Functions, EventBridge, SNS and SQS. One file a port or a service."""
