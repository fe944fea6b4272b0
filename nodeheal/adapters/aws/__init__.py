"""Implements the ports on AWS: DynamoDB, SSM, Step Functions, EventBridge, SNS and SQS, with one file for each port or
service.
"""
