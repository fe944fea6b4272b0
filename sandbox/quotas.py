"""Implements Service Quotas, as far as `nodeheal doctor` uses it: a new account has AWS's defaults and no value of its
own.
"""

from collections.abc import Mapping

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.iam import ACCOUNT, REGION

# AWS General Reference, AWS AppConfig endpoints and quotas: the code, its name and its default.
DEFAULTS: Mapping[tuple[str, str], tuple[str, float]] = {
    ("appconfig", "L-EEB0151E"): ("Maximum number of applications", 100.0),
    ("appconfig", "L-F59D302B"): ("Maximum number of deployment strategies", 20.0),
    ("appconfig", "L-48F9B951"): ("Configuration size limit in AWS AppConfig hosted configuration store", 2_048.0),
}


def operations() -> dict[str, Operation]:
    """Return the served operations, by name."""
    return {
        "GetServiceQuota": get_service_quota,
        "GetAWSDefaultServiceQuota": get_aws_default_service_quota,
    }


def get_service_quota(caller: Caller, request: Json) -> Json:
    """GetServiceQuota: this account has no value that differs from the default."""
    quota = f"arn:aws:servicequotas:{REGION}:{ACCOUNT}:{request['ServiceCode']}/{request['QuotaCode']}"
    caller.must_be_allowed("servicequotas:GetServiceQuota", quota)
    raise AwsError("NoSuchResourceException", "The request failed because the specified resource does not exist.")


def get_aws_default_service_quota(caller: Caller, request: Json) -> Json:
    """GetAWSDefaultServiceQuota."""
    caller.must_be_allowed("servicequotas:GetAWSDefaultServiceQuota", "*")
    service, code = request["ServiceCode"], request["QuotaCode"]
    if (service, code) not in DEFAULTS:
        raise AwsError("NoSuchResourceException", f"the sandbox has no quota {code} of {service}")
    name, value = DEFAULTS[service, code]
    return {"Quota": {"ServiceCode": service, "QuotaCode": code, "QuotaName": name, "Value": value}}
