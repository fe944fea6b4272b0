"""Creates the policy document's store: AppConfig, with a validator and a first version."""

from aws_cdk import aws_appconfig as appconfig
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from nodeheal.contract import names
from stacks.settings import REPOSITORY, SANDBOX_POLICY, Settings
from stacks.stages import KEPT_AFTER_ITS_STACK

VALIDATOR = "validate_policy"
# The first policy of a new deployment: every pool is only observed. Never edit it: CloudFormation would deploy the edit
# over the document that operators have applied since.
FIRST_POLICY = '{"default_pool": {"mode": "observe"}}'


class PolicyStore(Construct):
    """The store of the document, with its validator and its first version. It outlives the functions that read it."""

    def __init__(self, scope: Construct, validator: lambda_.Function, settings: Settings) -> None:
        super().__init__(scope, "Policy")
        # Neither SourceAccount nor SourceArn: AWS's own instructions for validators give this permission without a
        # condition, and no page says that AppConfig sends one. If it did not, no document could be deployed.
        allowed = lambda_.CfnPermission(
            self,
            "AppConfigMayValidate",
            action="lambda:InvokeFunction",
            function_name=validator.function_arn,
            principal="appconfig.amazonaws.com",
        )
        self.application = appconfig.CfnApplication(
            self, "Application", name=names.POLICY_APPLICATION, description="what nodeheal may do"
        )
        self.environment = appconfig.CfnEnvironment(
            self, "Environment", application_id=self.application.ref, name=names.POLICY_ENVIRONMENT
        )
        self.profile = appconfig.CfnConfigurationProfile(
            self,
            "Profile",
            application_id=self.application.ref,
            name=names.POLICY_PROFILE,
            location_uri="hosted",
            description="the recovery policy: nodeheal policy show, apply, rollback",
            validators=[
                appconfig.CfnConfigurationProfile.ValidatorsProperty(type="LAMBDA", content=validator.function_arn)
            ],
        )
        self.profile.add_resource_dependency(allowed)
        self._seed(settings)

    @property
    def ids(self) -> str:
        """Return the ids that a function needs: names may be ambiguous, ids are not."""
        return f"{self.application.ref}/{self.environment.ref}/{self.profile.ref}"

    @property
    def place(self) -> str:
        """Return the ids that an operator's command needs to read and to deploy a document."""
        return f"{self.ids}/{self._strategy.ref}"

    @property
    def resource(self) -> str:
        """Return the last part of the ARN that permissions name."""
        application, environment, profile = self.application.ref, self.environment.ref, self.profile.ref
        return f"application/{application}/environment/{environment}/configuration/{profile}"

    def _seed(self, settings: Settings) -> None:
        """Deploy the first version. It never changes, so a later deployment leaves alone what operators have
        applied.
        """
        text = (REPOSITORY / SANDBOX_POLICY).read_text(encoding="utf-8") if settings.is_sandbox else FIRST_POLICY
        version = appconfig.CfnHostedConfigurationVersion(
            self,
            "First",
            application_id=self.application.ref,
            configuration_profile_id=self.profile.ref,
            content=text,
            content_type="application/json",
        )
        self._strategy = appconfig.CfnDeploymentStrategy(
            self,
            "AtOnce",
            name=names.POLICY_STRATEGY,
            deployment_duration_in_minutes=0,
            final_bake_time_in_minutes=0,
            growth_factor=100,
            replicate_to="NONE",
            description="a policy is checked before it is applied, and is active for every function at once",
        )
        deployment = appconfig.CfnDeployment(
            self,
            "FirstDeployment",
            application_id=self.application.ref,
            environment_id=self.environment.ref,
            configuration_profile_id=self.profile.ref,
            configuration_version=version.ref,
            deployment_strategy_id=self._strategy.ref,
            description="the first policy document",
        )
        # All of it stays when the stack is deleted: AppConfig deletes no profile that has documents, and CloudFormation
        # knows of the first one only.
        for kept in (self.application, self.environment, self.profile, version, deployment):
            kept.apply_removal_policy(KEPT_AFTER_ITS_STACK)
