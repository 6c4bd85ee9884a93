"""Types of the API. Made of its description by `generate.py`; do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from typing_extensions import NotRequired, TypedDict


class Activated(TypedDict):
    """
    The active version after an activation or rollback.
    """

    active_version: int
    warning: NotRequired[str | None]


Actor: TypeAlias = Literal['operator', 'trigger', 'guard', 'job']


AggregateBody: TypeAlias = Literal['mean', 'least_misery']


class Arranged(TypedDict):
    """
    Settings of a recommendation besides its policy.
    """

    boost: NotRequired[list[float]]
    diversity: NotRequired[float | None]


class AskTrial(TypedDict, closed=True):
    """
    A worker that asks for a trial.
    """

    worker: str


AskedDo: TypeAlias = Literal['try', 'wait', 'end']


AttributeKind: TypeAlias = Literal['keyword', 'number', 'boolean']


class BackupCluster(TypedDict):
    """
    The cluster of a copy.
    """

    incarnation: int
    name: str


class BackupFile(TypedDict):
    """
    A file of a copy.
    """

    bytes: int
    known_by: NotRequired[str | None]
    name: str


class Baseline(TypedDict):
    """
    The baseline of a version: the mean loss of its first observations.
    """

    at: int
    count: int
    value: float


Consistency: TypeAlias = Literal['available', 'latest']


ContextField: TypeAlias = float | str | bool | list[str]


ContextFields: TypeAlias = dict[str, ContextField]


ContextType: TypeAlias = Literal['number', 'text', 'boolean', 'texts']


class CorrectBody(TypedDict, closed=True):
    """
    The correction of an observation.
    """

    label: float


Counts = TypedDict(
    'Counts',
    {
        'decisions': int,
        'defaults': int,
        'defaults_replaced': int,
        'explored': int,
        'explored_share': NotRequired[float | None],
        'from': NotRequired[int | None],
        'logged': int,
        'mean_reward': NotRequired[float | None],
        'pool': int,
        'rewards': int,
        'slots': int,
    },
)


class DefaultReward(TypedDict, closed=True):
    """
    The reward of a shown slot without a reward in time.
    """

    after_seconds: float
    label: float
    slots: NotRequired[int]


Dependence: TypeAlias = Literal['nothing', 'item', 'context', 'item_and_context']


class DrainReply(TypedDict):
    """
    The answer to a request to drain a node.
    """

    draining: bool
    owned: int


class DriftTrigger(TypedDict, closed=True):
    """
    The Page–Hinkley test on the loss of the active version.
    """

    threshold: NotRequired[float]
    tolerance: NotRequired[float]
    warm_up: NotRequired[int]


Effective: TypeAlias = Literal['now', 'next_version']


EmptyReason: TypeAlias = Literal['no_items', 'filter_names_unknown_attribute', 'filter_matches_nothing', 'none_available', 'all_excluded', 'all_seen', 'untrained']


class EstimateReport(TypedDict):
    """
    The result of one estimator.
    """

    effective_sample_size: float
    high: NotRequired[float | None]
    low: NotRequired[float | None]
    refused: NotRequired[str]
    value: NotRequired[float | None]


class Estimators(TypedDict):
    """
    The results of all estimators.
    """

    dm: EstimateReport
    dr: EstimateReport
    ips: EstimateReport
    replay: EstimateReport
    sndr: EstimateReport
    snips: EstimateReport
    switch_dr: EstimateReport


EventKind: TypeAlias = Literal['created', 'triggered', 'training_started', 'training_failed', 'gate_refused', 'gate_passed', 'activated', 'rolled_back', 'pinned', 'unpinned', 'pruned', 'registered', 'configured', 'study_started', 'study_ended', 'study_data_sent', 'tuned']


class ExistsFilter(TypedDict, closed=True):
    """
    The attribute exists and is not null.
    """

    field: str


FeatureSource: TypeAlias = Literal['trained', 'given', 'attributes', 'stand_in']


class FieldError(TypedDict):
    """
    A field of the request that is wrong.
    """

    detail: str
    pointer: str


FilterBound: TypeAlias = float | str


FilterValue: TypeAlias = str | float | bool


class FinishedBackup(TypedDict, closed=True):
    """
    A backup that is complete.
    """

    bytes: int
    sent_bytes: int
    to: str


class FitDictionary(TypedDict):
    """
    How a dictionary is learnt.
    """

    max_size: NotRequired[int | None]
    min_count: NotRequired[int | None]


class Gate(TypedDict, closed=True):
    """
    How candidates are evaluated against the active version before they are activated.
    """

    force: NotRequired[bool]
    holdout_share: NotRequired[float]
    margin: NotRequired[float]
    pool_min: NotRequired[int]
    shadow_seconds: NotRequired[int]


class Guard(TypedDict, closed=True):
    """
    The guard after a promotion: how long a new version is compared with the previous one. If the
    previous one is better, the model rolls back to it. Models of implicit feedback have no guard:
    their live observations are all of items that were taken.
    """

    margin: NotRequired[float]
    observations: NotRequired[int]
    seconds: NotRequired[int]


Id: TypeAlias = str


class InFilter(TypedDict, closed=True):
    """
    The attribute equals one of the values, or is a list of texts that contains one of them.
    """

    field: str
    values: list[FilterValue]


IngestState: TypeAlias = Literal['connecting', 'reading', 'waiting']


class Interval(TypedDict):
    """
    A difference with its 95 % interval.
    """

    high: float
    low: float
    value: float


class Item(TypedDict):
    """
    An item.
    """

    attributes: NotRequired[dict[str, Any]]
    features: list[float]
    given_features: NotRequired[list[float] | None]
    item: Id
    offset: float
    source: FeatureSource
    trained: bool


class ItemBody(TypedDict, closed=True):
    """
    Features and attributes of an item; absent fields stay unchanged.
    """

    attributes: NotRequired[dict[str, Any]]
    features: NotRequired[list[float] | None]


class ItemChanged(TypedDict):
    """
    When a change of an item takes effect.
    """

    effective: Effective
    item: Id


class ItemEdited(TypedDict):
    """
    The result of a line of an item stream.
    """

    deleted: NotRequired[bool]
    effective: NotRequired[Effective]
    item: Id


class ItemSummary(TypedDict):
    """
    One item of a listing.
    """

    attributes: dict[str, Any]
    item: Id
    trained: bool


JobState: TypeAlias = Literal['queued', 'running', 'succeeded', 'rejected', 'failed']


Joined: TypeAlias = Literal['slot', 'repeated', 'not_shown', 'other_user', 'expired', 'unknown']


class JoinedCounts(TypedDict):
    """
    Number of observations that referred to a decision, by the result of joining them to it.
    """

    expired: int
    not_shown: int
    other_user: int
    repeated: int
    slot: int
    unknown: int


Kind: TypeAlias = Literal['model', 'selection']


LabelsOutside: TypeAlias = Literal['refuse', 'clip']


class LineCounts(TypedDict):
    """
    The number of lines by outcome.
    """

    duplicates: int
    rejected: int
    taken: int


class LinesSummary(TypedDict):
    """
    The last reply.
    """

    summary: LineCounts


class ListedDecision(TypedDict):
    """
    A decision of a listing.
    """

    candidates: int
    decision_id: Id
    items: list[Id]
    pool: bool
    timestamp: int
    user: Id
    version: int


Loss: TypeAlias = Literal['squared', 'logistic', 'implicit']


class MadeBackup(TypedDict):
    """
    A backup that was made of this node.
    """

    at: int
    bytes: int
    finished: int
    id: str
    principal: NotRequired[str | None]
    records: int
    sent_bytes: int
    to: str


class Mean(TypedDict):
    """
    A mean loss in the model's metric.
    """

    count: int
    value: float


Metric: TypeAlias = Literal['rmse', 'log_loss', 'rank']


ModelKind: TypeAlias = Literal['model']


Name: TypeAlias = str


class NodeState(TypedDict):
    """
    A node, by what it said last.
    """

    draining: bool
    live: bool
    node: Name
    owns: int
    starting: bool
    url: str


Number: TypeAlias = int


class Numbers(TypedDict):
    """
    The numbers and times of an attribute; times in Unix milliseconds.
    """

    items: int
    max: float
    min: float


ObjectKind: TypeAlias = Literal['dictionary', 'weights', 'idf', 'moments', 'centroids', 'components', 'embedding', 'trees', 'onnx', 'attributes']


ObjectName: TypeAlias = str


class ObjectReply(TypedDict):
    """
    An object on this node.
    """

    bytes: int
    sha256: ObjectName
    used_by: list[Name]


Objective: TypeAlias = Literal['reward', 'error']


class ObserveReply(TypedDict):
    """
    The result of an observation.
    """

    clipped: NotRequired[float | None]
    duplicate: bool
    joined: NotRequired[Joined]
    observation_id: Id
    predicted: NotRequired[float | None]
    sequence: int
    user_epoch: int


class OfUser(TypedDict):
    """
    The mean loss of one user's observations.
    """

    count: int
    user: Id
    value: float


class Outcome(TypedDict):
    """
    An observation that refers to the decision.
    """

    default: bool
    item: NotRequired[Id | None]
    joined: NotRequired[Joined | None]
    label: float
    observation_id: Id
    slot: NotRequired[int | None]
    timestamp: int


class PartReason(TypedDict):
    """
    A computed part of the features, and what it adds to the score.
    """

    contribution: float
    part: str


PartSource: TypeAlias = Literal['table']


class PartitionStatus(TypedDict):
    """
    How far a partition was read.
    """

    lag: int | None
    partition: str
    position: int | None
    problem: str | None


class PersonalizerFailureDetail(TypedDict):
    """
    What is wrong.
    """

    code: str
    message: str
    target: NotRequired[str]


class PersonalizerFilledSlot(TypedDict):
    """
    A slot with its action.
    """

    id: Id
    rewardActionId: NotRequired[Id]


class PersonalizerRankSlotsReply(TypedDict):
    """
    The actions that were chosen for the slots.
    """

    eventId: Id
    slots: list[PersonalizerFilledSlot]


class PersonalizerRankedAction(TypedDict):
    """
    An action with its probability.
    """

    id: Id
    probability: float


class PersonalizerRewardBody(TypedDict, closed=True):
    """
    The reward of an event.
    """

    value: float


class PersonalizerService(TypedDict):
    """
    Settings of a model in the form of Azure Personalizer.
    """

    defaultReward: NotRequired[float | None]
    explorationPercentage: NotRequired[float | None]
    learningMode: str
    logMirrorEnabled: bool
    logRetentionDays: int
    modelExportFrequency: str
    rewardAggregation: str
    rewardWaitTime: NotRequired[str | None]


class PersonalizerServiceChange(TypedDict, closed=True):
    """
    The settings to change; absent ones stay.
    """

    defaultReward: NotRequired[float | None]
    explorationPercentage: NotRequired[float | None]
    isAutoOptimizationEnabled: NotRequired[bool | None]
    learningMode: NotRequired[str | None]
    logMirrorEnabled: NotRequired[bool | None]
    logRetentionDays: NotRequired[int | None]
    modelExportFrequency: NotRequired[str | None]
    rewardAggregation: NotRequired[str | None]
    rewardWaitTime: NotRequired[str | None]


class PipelineObject(TypedDict):
    """
    An object of a pipeline.
    """

    bytes: int
    kind: ObjectKind
    sha256: ObjectName
    shared_by: int


PipelineParameter: TypeAlias = float | str | bool | list[float] | list[str] | FitDictionary


class PipelineStage(TypedDict):
    """
    A part of a pipeline that is one pass over its input.
    """

    computed: str
    depends_on: Dependence
    nodes: list[str]
    ops: list[str]
    shared_by: int
    stage: str


class PipelineSummary(TypedDict):
    """
    A pipeline in the list.
    """

    declared: int
    name: Name
    nodes: int
    revision: int


class Point(TypedDict):
    """
    A point of the loss curve: the mean loss of consecutive observations under one version.
    """

    at: int
    count: int
    position: int
    value: float
    version: int


class Policy1(TypedDict):
    """
    Ranks by the highest score.
    """

    name: Literal['greedy']


class Policy2(TypedDict):
    """
    Picks the highest score, or with probability `epsilon` a uniformly random candidate.
    """

    epsilon: NotRequired[float]
    name: Literal['epsilon_greedy']


Policy3 = TypedDict(
    'Policy3',
    {
        'lambda': NotRequired[float],
        'name': Literal['softmax'],
    },
)


class Policy4(TypedDict):
    """
    Draws candidates by how far their score is below the best. Exploration fades as the user's
    observations accumulate.
    """

    gamma_exponent: NotRequired[float]
    gamma_scale: NotRequired[float]
    name: Literal['squarecb']


class Policy5(TypedDict):
    """
    Ranks by the highest `score + alpha * std_error`.
    """

    alpha: NotRequired[float]
    name: Literal['lin_ucb']


class Policy6(TypedDict):
    """
    Ranks by the highest score under weights that explain the user's history about as well as
    the best weights.
    """

    mellowness: NotRequired[float]
    name: Literal['regcb']


class Policy7(TypedDict):
    """
    Ranks by the highest score under weights drawn from the user's posterior.
    """

    alpha: NotRequired[float]
    name: Literal['thompson']


Policy: TypeAlias = Policy1 | Policy2 | Policy3 | Policy4 | Policy5 | Policy6 | Policy7


PolicyName: TypeAlias = Literal['greedy', 'epsilon_greedy', 'softmax', 'squarecb', 'lin_ucb', 'regcb', 'thompson']


PolicyOrName: TypeAlias = PolicyName | Policy


class PopularityTrigger(TypedDict, closed=True):
    """
    Fit offsets of items, by the trainer `popularity`, while the model was not trained otherwise:
    whenever the log has grown by `observations` records and by the share `growth`.
    """

    growth: NotRequired[float]
    observations: NotRequired[int]
    until: NotRequired[int]


class Problem(TypedDict):
    """
    A problem detail (RFC 9457).
    """

    detail: str
    errors: NotRequired[list[FieldError]]
    request_id: NotRequired[str]
    status: int
    title: str
    type: str


class RangeFilter(TypedDict, closed=True):
    """
    The attribute is a number or time within the bounds: one of `gte` and `gt`, one of `lte` and
    `lt`, or one of each.
    """

    field: str
    gt: NotRequired[FilterBound]
    gte: NotRequired[FilterBound]
    lt: NotRequired[FilterBound]
    lte: NotRequired[FilterBound]


class Rankings(TypedDict):
    """
    How much rankings differ, as means over users.
    """

    items: int
    kendall_tau: float
    overlap_at_10: float
    users: int


class Reason(TypedDict):
    """
    One observation and its contribution to the score.
    """

    contribution: float
    item: Id
    label: float
    observation_id: NotRequired[Id | None]
    of_choice: NotRequired[float | None]
    of_recent_bias: NotRequired[float | None]
    timestamp: int
    weight: float


class RecentLoss(TypedDict):
    """
    The recent loss of a model.
    """

    count: int
    metric: Metric
    value: float


RecordedPolicy = TypedDict(
    'RecordedPolicy',
    {
        'alpha': NotRequired[float],
        'arranged': NotRequired[Arranged],
        'epsilon': NotRequired[float],
        'gamma_exponent': NotRequired[float],
        'gamma_scale': NotRequired[float],
        'lambda': NotRequired[float],
        'mellowness': NotRequired[float],
        'name': PolicyName,
    },
)


class RegisterBody(TypedDict, closed=True):
    """
    A version to register.
    """

    path: str


class RejectedLine(TypedDict):
    """
    A rejected line.
    """

    error: Problem
    line: int


class RetrainBody(TypedDict, closed=True):
    """
    Options of a retraining.
    """

    cold: NotRequired[bool]
    engine: NotRequired[str | None]
    why: NotRequired[str | None]


class Revision(TypedDict):
    """
    The revision of a map: ordered by `epoch`, then by `number`.
    """

    epoch: int
    number: int


class RewardsOf(TypedDict):
    """
    What one policy has earned with one version on a day.
    """

    day: int
    decisions: int
    defaults: int
    mean_reward: NotRequired[float | None]
    policy: str
    pool: bool
    reward: float
    reward_per_decision: float
    rewards: int
    scored_by: Name
    slots: int
    version: int


RewardsReply = TypedDict(
    'RewardsReply',
    {
        'complete': bool,
        'counted': int,
        'days': int,
        'decisions': int,
        'from': int,
        'model': Name,
        'rows': list[RewardsOf],
    },
)


class Rise(TypedDict):
    """
    A rise of the loss found by the drift test.
    """

    after: int
    before: int
    value_after: float
    value_before: float


Role: TypeAlias = Literal['predict', 'observe', 'operate', 'admin']


class RunRecord(TypedDict, closed=True):
    """
    One input.
    """

    context: NotRequired[ContextFields]
    item: NotRequired[dict[str, Any]]


class RunReply(TypedDict):
    """
    The outputs, in the order of the inputs.
    """

    outputs: list[list[float]]


class RunningBackup(TypedDict):
    """
    A copy that is held for a backup.
    """

    at: int
    id: str
    principal: NotRequired[str | None]


Sampler: TypeAlias = Literal['random', 'gp', 'tpe']


class ScheduleTrigger(TypedDict, closed=True):
    """
    Retrain once this time has passed since the last training started and there are new
    observations.
    """

    every: float


Scope: TypeAlias = Literal['user', 'global', 'segment']


class Score(TypedDict):
    """
    The score of an item.
    """

    confidence: NotRequired[float]
    item: Id
    known: bool
    label_std: float
    probability: NotRequired[float]
    score: float
    std_error: float


class SeenRuleBody(TypedDict, closed=True):
    """
    A rule for the observations whose items are excluded.
    """

    feedback: NotRequired[list[str]]
    window: NotRequired[str | None]


SelectionKind: TypeAlias = Literal['selection']


class SelectionOfArm(TypedDict):
    """
    The arm that answered for a selection.
    """

    arm: NotRequired[Name | None]
    propensity: float
    segment: NotRequired[Name | None]


SettingValue: TypeAlias = float | str | bool | None


Signal: TypeAlias = Literal['observations', 'pool']


class Skipped(TypedDict):
    """
    Decisions of the time span that were excluded, by reason.
    """

    candidates_not_kept: int
    history_amended: int
    inputs_changed: int
    not_reached: int
    not_sampled: int
    propensity_unknown: int
    reward_may_come: int
    reward_missing: int
    seed_given: int
    version_pruned: int


class Slot(TypedDict):
    """
    A slot of a ranking.
    """

    confidence: NotRequired[float]
    item: Id
    known: bool
    label_std: float
    probability: NotRequired[float]
    propensity: NotRequired[float | None]
    score: float
    std_error: float


class SlotAgain(TypedDict):
    """
    A slot of a replayed ranking.
    """

    explored: bool
    item: Id
    propensity: NotRequired[float | None]
    rank_by_score: int
    score: float
    std_error: float


class Span(TypedDict):
    """
    A value with its 95 % interval.
    """

    high: float
    low: float
    value: float


class Strategy1(TypedDict):
    """
    EXP3: one model answers, drawn with exponential weights.
    """

    floor: NotRequired[float]
    name: Literal['exp3']


class Strategy2(TypedDict):
    """
    EXP4: all models answer together, combined with exponential weights.
    """

    name: Literal['exp4']
    tolerance: NotRequired[float]


class Strategy3(TypedDict):
    """
    Tsallis-INF: one model answers, drawn by mirror descent with the Tsallis entropy.
    """

    floor: NotRequired[float]
    name: Literal['tsallis_inf']


class Strategy4(TypedDict):
    """
    A/B split: each user is answered by one model, drawn once.
    """

    name: Literal['ab']
    shares: NotRequired[list[float] | None]


Strategy: TypeAlias = Strategy1 | Strategy2 | Strategy3 | Strategy4


StrategyName: TypeAlias = Literal['exp3', 'exp4', 'tsallis_inf', 'ab']


StrategyOrName: TypeAlias = StrategyName | Strategy


class StudyAccepted(TypedDict):
    """
    An accepted study.
    """

    study: Id


class StudyApplied(TypedDict):
    """
    The use of a study's settings.
    """

    at: int
    job: Id
    trial: int


StudyEnded: TypeAlias = Literal['trials', 'seconds', 'patience', 'stopped', 'failures']


StudyState: TypeAlias = Literal['running', 'ending', 'ended']


TextOrBoolean: TypeAlias = str | bool


Then: TypeAlias = Literal['retrain']


class ThresholdTrigger(TypedDict, closed=True):
    """
    Retrain if the mean loss over a window exceeds the baseline: that of the version's first
    observations.
    """

    margin: NotRequired[float]
    on: NotRequired[Signal]
    window: NotRequired[int]


Time: TypeAlias = str | int


class TrainerLimits(TypedDict, closed=True):
    """
    Limits of one training, all of its processes together. Missing figures default to the node's
    limits, which no figure may exceed.
    """

    disk: NotRequired[int | None]
    heartbeat_seconds: NotRequired[int | None]
    memory: NotRequired[int | None]
    processes: NotRequired[int | None]
    seconds: NotRequired[int | None]


class Training(TypedDict):
    """
    A training that has read observations of an erased user.
    """

    input_removed_by: int
    job: Id
    model: Name


class TrialLoss(TypedDict):
    """
    A loss on held-out observations.
    """

    difference_error: NotRequired[float | None]
    params: dict[str, SettingValue]
    standard_error: NotRequired[float | None]
    trial: int
    value: float


class TrialReply(TypedDict):
    """
    The reply to a report.
    """

    lease_until: int


class TrialReport(TypedDict, closed=True):
    """
    A worker that is at work on its trial.
    """

    attempt: int


class TrialResult(TypedDict, closed=True):
    """
    The result of a trial: its loss, or why it has none.
    """

    attempt: int
    difference_error: NotRequired[float | None]
    error: NotRequired[str | None]
    standard_error: NotRequired[float | None]
    value: NotRequired[float | None]


TrialState: TypeAlias = Literal['running', 'complete', 'failed', 'abandoned']


class Unavailable(TypedDict):
    """
    A model or selection whose documents or files the node cannot read. Requests to it are answered
    with 503; it can be deleted, or restored from a backup before the next start.
    """

    kind: Kind
    name: Name
    unavailable: str


Uniform: TypeAlias = Literal['uniform']


class UnknownAttribute(TypedDict):
    """
    An attribute that no item has.
    """

    name: str
    nearest: list[str]


class UserBody(TypedDict, closed=True):
    """
    Attributes of a user.
    """

    attributes: dict[str, Any]


class UserDescribed(TypedDict):
    """
    A user whose attributes are on disk and count from now on.
    """

    user: Id
    user_epoch: int


UserEventKind: TypeAlias = Literal['observe', 'correct', 'retract']


class Users(TypedDict):
    """
    The distribution of the loss over users.
    """

    compared: int
    median: NotRequired[float | None]
    ninth_decile: NotRequired[float | None]
    tracked: int
    worst: list[OfUser]


class ValueCount(TypedDict):
    """
    A value and its number of items.
    """

    items: int
    value: TextOrBoolean


Verdict: TypeAlias = Literal['passed', 'refused', 'not_judged', 'forced']


class VersionPart(TypedDict):
    """
    A computed part of a version.
    """

    is_constant: bool
    part: str
    unread_fields: list[str]


class VolumeTrigger(TypedDict, closed=True):
    """
    Retrain once the log contains enough records that the latest trained version was not trained on:
    `observations`, and at least the share `growth` of those that it was trained on.
    """

    growth: NotRequired[float]
    observations: int


class WeightsThen(TypedDict):
    """
    The weights at a position of the log.
    """

    position: int
    weights: list[float]


class WhyReply(TypedDict):
    """
    A score and its terms: `prior`, `of_attributes`, all contributions of `because`, and `others` sum to it.
    """

    because: list[Reason]
    item: Id
    known: bool
    missing: NotRequired[list[str]]
    observations: int
    of_attributes: NotRequired[float | None]
    others: float
    parts: NotRequired[list[PartReason]]
    prior: float
    score: float
    std_error: float
    user: Id
    user_epoch: int
    version: int


class Window(TypedDict):
    """
    The mean loss over a window of observations.
    """

    count: int
    observations: int
    value: float


class Accepted(TypedDict):
    """
    An accepted job.
    """

    job: Id


class Alike(TypedDict):
    """
    A similar item.
    """

    item: Id
    similarity: float


class AmendReply(TypedDict):
    """
    The result of an amendment, once it is durable.
    """

    clipped: NotRequired[float]
    duplicate: bool
    observation_id: Id
    sequence: int
    user: Id
    user_epoch: int


class Arm(TypedDict):
    """
    The state of an arm.
    """

    arm: Name
    difference: NotRequired[Interval | None]
    mean_loss: NotRequired[float | None]
    outcomes: int
    weight: float


class ArmWeight(TypedDict):
    """
    The weight of a model in a combined answer.
    """

    arm: Name
    version: int
    weight: float


class AskedTrial(TypedDict):
    """
    The reply to a worker that asks for a trial. Without a trial, all but `do` and `data` is null.
    """

    attempt: NotRequired[int | None]
    data: NotRequired[int | None]
    do: AskedDo
    lease_seconds: NotRequired[int | None]
    lease_until: NotRequired[int | None]
    params: NotRequired[dict[str, SettingValue]]
    trial: NotRequired[int | None]


class Attribute(TypedDict):
    """
    An attribute that filters can name.
    """

    distinct: int
    items: int
    kinds: list[AttributeKind]
    name: str
    numbers: NotRequired[Numbers | None]
    values: list[ValueCount]


class AttributeList(TypedDict):
    """
    The attributes of a catalog.
    """

    attributes: list[Attribute]


class Axis(TypedDict, closed=True):
    """
    The values of a setting that a study tries: exactly one of `int`, `float` and `choice`.
    """

    choice: NotRequired[list[SettingValue] | None]
    float: NotRequired[list[float] | None]
    int: NotRequired[list[int] | None]
    log: NotRequired[bool]


class BackupCopy(TypedDict):
    """
    A copy of the node's data directory as of one moment.
    """

    at: int
    celeris: str
    cluster: NotRequired[BackupCluster | None]
    files: list[BackupFile]
    id: str
    idle_seconds_max: int
    missing: list[str]
    position: dict[str, list[int]]
    records: int
    store: str
    versions: int


class BackupList(TypedDict):
    """
    The backups that were made of this node.
    """

    backups: list[MadeBackup]
    running: list[RunningBackup]


class Candidates(TypedDict):
    """
    The recorded candidates of a decision.
    """

    count: int
    digest: NotRequired[str | None]
    items: NotRequired[list[Id] | None]


class ClusterNode(TypedDict):
    """
    A live node.
    """

    node: Name
    url: str


class ClusterShard(TypedDict):
    """
    A range of partitions.
    """

    first: int
    last: int
    owned: bool
    owner: NotRequired[Name | None]
    shard: int


class Comparison(TypedDict):
    """
    The losses of two versions on the same observations. A figure that is not a finite number is
    null.
    """

    candidate: NotRequired[float | None]
    difference: NotRequired[float | None]
    incumbent: NotRequired[float | None]
    metric: Metric
    observations: int
    standard_error: NotRequired[float | None]


class ContextFieldOfStream(TypedDict):
    """
    A field that contexts of a stream have had. It keeps its type.
    """

    name: str
    type: ContextType


class DecisionPage(TypedDict):
    """
    A page of decisions, the latest first.
    """

    decisions: list[ListedDecision]
    next: NotRequired[Id | None]


class DecisionSlot(TypedDict):
    """
    A shown slot.
    """

    explored: bool
    item: Id
    propensity: NotRequired[float | None]
    propensity_std_error: NotRequired[float | None]
    reward: NotRequired[float | None]
    score: float
    std_error: float


class DifferentItems(TypedDict):
    """
    Items that only one of the versions has.
    """

    count: int
    first: list[Id]


class Drift(TypedDict):
    """
    The drift test (Page–Hinkley) on the loss of the active version.
    """

    observations: int
    observations_between_false_alarms: float
    rise: NotRequired[Rise | None]
    statistic: float
    threshold: float
    tolerance: float
    warm_up: int


class EqFilter(TypedDict, closed=True):
    """
    The attribute equals the value, or is a list of texts that contains it.
    """

    field: str
    value: FilterValue


class EvaluateReply(TypedDict):
    """
    The estimated value of the policy.
    """

    decisions: int
    estimators: NotRequired[Estimators | None]
    largest_weight: NotRequired[float | None]
    logged: NotRequired[Span | None]
    mean_weight: NotRequired[float | None]
    missing_reward: NotRequired[float | None]
    model: Name
    policy: Policy
    rewarded: int
    rewarded_share: NotRequired[float | None]
    rounds: int
    skipped: Skipped
    slots: int


class Event(TypedDict):
    """
    An event of a model.
    """

    after: NotRequired[int | None]
    at: int
    before: NotRequired[int | None]
    by: Actor
    details: dict[str, Any]
    kind: EventKind
    number: int
    principal: NotRequired[str | None]
    why: str


class EventPage(TypedDict):
    """
    A page of events, newest first.
    """

    dropped: int
    events: list[Event]
    next: NotRequired[int | None]
    unreadable: list[str]


class ExplorationReply(TypedDict):
    """
    The exploration of a model since the node started.
    """

    joined: JoinedCounts
    model: Name
    policy: Policy
    pool_share: float
    span_ms: int
    spans: list[Counts]
    totals: Counts


Filter = TypedDict(
    'Filter',
    {
        'all': NotRequired[list["Filter"]],
        'any': NotRequired[list["Filter"]],
        'eq': NotRequired[EqFilter],
        'exists': NotRequired[ExistsFilter],
        'in': NotRequired[InFilter],
        'not': NotRequired["Filter"],
        'range': NotRequired[RangeFilter],
    },
    closed=True,
)


class GateReport(TypedDict):
    """
    The gate's evaluation of a candidate.
    """

    holdout: NotRequired[Comparison | None]
    incumbent: int
    margin: float
    measure: Metric
    pool: NotRequired[Comparison | None]
    seconds: float
    shadow: NotRequired[Comparison | None]
    verdict: Verdict
    why: str


class Guarding(TypedDict):
    """
    A running guard.
    """

    against: int
    comparison: NotRequired[Comparison | None]
    since: int


IdOrInteger: TypeAlias = Id | Number


class IngestStatus(TypedDict):
    """
    What an ingest does.
    """

    dead_letters: int
    dead_letters_to: str
    duplicates: int
    model: str
    name: str
    observations: int
    partitions: list[PartitionStatus]
    problem: str | None
    removed: int
    source: str
    state: IngestState


ItemEditedLine: TypeAlias = ItemEdited | RejectedLine | LinesSummary


class ItemLine(TypedDict, closed=True):
    """
    A line of an item stream: features and attributes of an item, or its deletion.
    """

    attributes: NotRequired[dict[str, Any]]
    delete: NotRequired[bool]
    features: NotRequired[list[float] | None]
    item: IdOrInteger


class ItemPage(TypedDict):
    """
    A page of items.
    """

    items: list[ItemSummary]
    next: NotRequired[Id | None]
    total: int


ItemResult: TypeAlias = ItemEdited | RejectedLine


class ItemsEdited(TypedDict):
    """
    The reply to an array of items.
    """

    results: list[ItemResult]
    summary: LineCounts


class Job(TypedDict):
    """
    A retrain job.
    """

    created: int
    engine: str
    error: NotRequired[str | None]
    finished: NotRequired[int | None]
    gate: NotRequired[GateReport | None]
    job: Id
    metrics: dict[str, float]
    model: Name
    model_id: int
    phase: str
    progress: float
    state: JobState
    version: NotRequired[int | None]
    why: str


class JobPage(TypedDict):
    """
    A page of jobs, the latest first.
    """

    jobs: list[Job]
    next: NotRequired[Id | None]


class Key(TypedDict):
    """
    A key, without its secret.
    """

    created: int
    created_by: NotRequired[str | None]
    expires: NotRequired[int | None]
    id: str
    models: list[Name]
    name: str
    observations_per_second: NotRequired[float | None]
    requests_per_second: NotRequired[float | None]
    revoked: NotRequired[int | None]
    revoked_by: NotRequired[str | None]
    roles: list[Role]
    streams: list[Name]


class KeyList(TypedDict):
    """
    All keys, the latest first.
    """

    keys: list[Key]


class KnowingVersion(TypedDict):
    """
    A version that was trained on observations of an erased user.
    """

    active: bool
    model: Name
    version: int


class ListedUser(TypedDict):
    """
    A user of a listing.
    """

    loss: NotRequired[Mean | None]
    user: Id
    user_epoch: int


class LogState(TypedDict):
    """
    A log, as the copy of this node has it.
    """

    applied: int
    durable: int
    epoch: int
    lag: NotRequired[int | None]
    log: str
    owner: NotRequired[Name | None]
    phase: str
    problem: NotRequired[str | None]
    staleness_seconds: NotRequired[float | None]


NameOrInteger: TypeAlias = Name | Number


class NewKeyBody(TypedDict, closed=True):
    """
    A key to make.
    """

    expires: NotRequired[int | None]
    models: NotRequired[list[Name]]
    name: str
    observations_per_second: NotRequired[float | None]
    requests_per_second: NotRequired[float | None]
    roles: list[Role]
    streams: NotRequired[list[Name]]


class NewKeyReply(Key):
    """
    A key that was made.
    """

    key: str


class NewSelectionBody(TypedDict, closed=True):
    """
    A selection to create.
    """

    arms: list[NameOrInteger]
    default_reward: NotRequired[DefaultReward | None]
    half_life_records: NotRequired[int | None]
    kind: SelectionKind
    label_range: NotRequired[list[float] | None]
    name: NameOrInteger
    objective: NotRequired[Objective | None]
    policy: NotRequired[PolicyOrName | None]
    pool_share: NotRequired[float | None]
    scope: NotRequired[Scope | None]
    segments: NotRequired[list[NameOrInteger]]
    strategy: NotRequired[StrategyOrName | None]


class NewStudy(TypedDict, closed=True):
    """
    A study to start.
    """

    collaborative: NotRequired[bool]
    lease_seconds: NotRequired[int | None]
    patience: NotRequired[int | None]
    remote_workers: NotRequired[int]
    sampler: NotRequired[Sampler | None]
    seconds: NotRequired[int | None]
    seed: NotRequired[int | None]
    space: dict[str, Axis]
    then: NotRequired[Then | None]
    trials: NotRequired[int | None]
    why: NotRequired[str | None]
    workers: NotRequired[int | None]


class ObserveBody(TypedDict, closed=True):
    """
    One observation.
    """

    context: NotRequired[ContextFields | None]
    decision_id: NotRequired[IdOrInteger | None]
    feedback: NotRequired[str | None]
    item: IdOrInteger
    label: float
    observation_id: NotRequired[IdOrInteger | None]
    timestamp: NotRequired[Time | None]
    user: IdOrInteger
    weight: NotRequired[float | None]


ObservedLine: TypeAlias = ObserveReply | RejectedLine | LinesSummary


ObservedResult: TypeAlias = ObserveReply | RejectedLine


PartOfFeatures = TypedDict(
    'PartOfFeatures',
    {
        'dim': NotRequired[int],
        'from': NotRequired[PartSource],
        'part': Name,
        'pipeline': NotRequired[Name],
    },
    closed=True,
)


class PastBody(TypedDict, closed=True):
    """
    One observation of an anonymous user's history.
    """

    context: NotRequired[ContextFields | None]
    feedback: NotRequired[str | None]
    item: IdOrInteger
    label: float
    timestamp: NotRequired[Time | None]
    weight: NotRequired[float | None]


class PersonalizerAction(TypedDict, closed=True):
    """
    Something to choose.
    """

    features: NotRequired[list[dict[str, Any]] | None]
    id: IdOrInteger


class PersonalizerFailure(TypedDict):
    """
    An error in the form of Azure Personalizer.
    """

    error: PersonalizerFailureDetail


class PersonalizerRankBody(TypedDict, closed=True):
    """
    The actions to choose from, and the circumstances.
    """

    actions: list[PersonalizerAction]
    contextFeatures: NotRequired[list[dict[str, Any]] | None]
    deferActivation: NotRequired[bool | None]
    eventId: NotRequired[IdOrInteger | None]
    excludedActions: NotRequired[list[IdOrInteger] | None]


class PersonalizerRankReply(TypedDict):
    """
    The chosen action, and the probabilities of all.
    """

    eventId: Id
    ranking: list[PersonalizerRankedAction]
    rewardActionId: Id


class PersonalizerSlot(TypedDict, closed=True):
    """
    A place for which an action is chosen.
    """

    baselineAction: IdOrInteger
    excludedActions: NotRequired[list[IdOrInteger] | None]
    features: NotRequired[list[dict[str, Any]] | None]
    id: IdOrInteger


class PersonalizerSlotReward(TypedDict, closed=True):
    """
    The reward of a slot.
    """

    slotId: IdOrInteger
    value: float


class PipelineList(TypedDict):
    """
    The pipelines, by name.
    """

    pipelines: list[PipelineSummary]


class PipelineNode(TypedDict, extra_items='PipelineParameter'):
    """
    An operator: its name, and its parameters, which docs/guides/pipelines.md lists.
    """

    op: str


class PipelinePlan(TypedDict):
    """
    The execution of a pipeline.
    """

    objects: list[PipelineObject]
    rewrites: list[str]
    stages: list[PipelineStage]


PolicyOrUniform: TypeAlias = Uniform | PolicyOrName


class PredictBody(TypedDict, closed=True):
    """
    The user and the items to score: either `item` or `items`.
    """

    consistency: NotRequired[Consistency]
    context: NotRequired[ContextFields | None]
    item: NotRequired[IdOrInteger | None]
    items: NotRequired[list[IdOrInteger] | None]
    min_epoch: NotRequired[int | None]
    segment: NotRequired[NameOrInteger | None]
    user: IdOrInteger


class PredictReply(TypedDict):
    """
    The scores, in the order of the request.
    """

    arm: NotRequired[Name]
    arm_propensity: NotRequired[float]
    arms: NotRequired[list[ArmWeight]]
    cold: bool
    missing: NotRequired[list[str]]
    scores: list[Score]
    stale_ms: NotRequired[int]
    user: Id
    user_epoch: int
    version: int


class Quality(TypedDict):
    """
    Prediction quality of a model: every observation is predicted before it is learnt.
    """

    baseline: NotRequired[Baseline | None]
    baseline_observations: int
    curve: list[Point]
    day: NotRequired[Mean | None]
    drift: Drift
    hour: NotRequired[Mean | None]
    loss: Loss
    metric: Metric
    model: Name
    observations: int
    pool: NotRequired[Mean | None]
    pool_baseline: NotRequired[Baseline | None]
    pool_observations: int
    user: NotRequired[OfUser | None]
    users: Users
    version: int
    windows: list[Window]


class Receipt(TypedDict):
    """
    The receipt of an erasure: what was removed, and what remains until when.
    """

    copies: str
    decisions: int
    erased: int
    log_trimmed_by: NotRequired[int]
    observations: int
    segments_rewritten_by: NotRequired[int | None]
    trainings: list[Training]
    user: Id
    user_epoch: int
    versions: list[KnowingVersion]


class Replay(TypedDict):
    """
    A replay of the ranking: recomputed from the user's history at that time, with the recorded
    policy and seed.
    """

    same: NotRequired[bool | None]
    slots: list[SlotAgain]
    why_not: NotRequired[str | None]


class Report(TypedDict):
    """
    The state of a selection.
    """

    arms: list[Arm]
    curve: list[WeightsThen]
    model: Name
    objective: Objective
    records: int
    scope: Scope
    state_hash: str
    strategy: Strategy


class RunBody(TypedDict, closed=True):
    """
    The inputs to run a pipeline on.
    """

    records: list[RunRecord]


SeenForm: TypeAlias = bool | SeenRuleBody


class Selection(TypedDict):
    """
    A selection.
    """

    arms: list[Name]
    created: int
    default_reward: NotRequired[DefaultReward | None]
    half_life_records: NotRequired[int | None]
    id: int
    kind: SelectionKind
    label_range: list[float]
    name: Name
    objective: Objective
    observations: int
    policy: Policy
    pool_share: float
    scope: Scope
    segments: list[Name]
    strategy: Strategy
    stream: Name
    weights: NotRequired[dict[str, float]]


class SimilarReply(TypedDict):
    """
    Items similar to an item.
    """

    item: Id
    items: list[Alike]
    version: int


class StudySummary(TypedDict):
    """
    A study without its trials.
    """

    applied: NotRequired[StudyApplied | None]
    baseline: NotRequired[TrialLoss | None]
    best: NotRequired[TrialLoss | None]
    complete: int
    created: int
    error: NotRequired[str | None]
    finished: NotRequired[int | None]
    metric: Metric
    model: Name
    state: StudyState
    study: Id
    then: NotRequired[Then | None]
    trials_max: int
    why: str
    why_stopped: NotRequired[StudyEnded | None]


class StudyTrial(TypedDict):
    """
    A trial: a training with some settings.
    """

    attempts: int
    difference_error: NotRequired[float | None]
    error: NotRequired[str | None]
    params: dict[str, SettingValue]
    seconds: NotRequired[float | None]
    standard_error: NotRequired[float | None]
    state: TrialState
    trial: int
    value: NotRequired[float | None]
    warm_from: NotRequired[int | None]
    worker: NotRequired[str | None]


class StudyTrigger(TypedDict, closed=True):
    """
    Start a study once this time has passed since the last one started and there are new observations.
    """

    collaborative: NotRequired[bool]
    every: float
    patience: NotRequired[int | None]
    remote_workers: NotRequired[int]
    sampler: NotRequired[Sampler]
    seconds: NotRequired[int | None]
    space: dict[str, Axis]
    then: NotRequired[Then | None]
    trials: NotRequired[int]
    workers: NotRequired[int]


class TopkBody(TypedDict, closed=True):
    """
    The items to rank, and how.
    """

    consistency: NotRequired[Consistency]
    context: NotRequired[ContextFields | None]
    items: list[IdOrInteger]
    k: int
    min_epoch: NotRequired[int | None]
    policy: NotRequired[PolicyOrName | None]
    seed: NotRequired[int | None]
    segment: NotRequired[NameOrInteger | None]
    user: IdOrInteger


class TopkReply(TypedDict):
    """
    A ranking, best first.
    """

    arm: NotRequired[Name]
    arm_propensity: NotRequired[float]
    arms: NotRequired[list[ArmWeight]]
    cold: bool
    decision_id: Id
    items: list[Slot]
    logged: bool
    missing: NotRequired[list[str]]
    policy: Policy
    pool: bool
    seed: int
    seed_given: bool
    stale_ms: NotRequired[int]
    user: NotRequired[Id]
    user_epoch: int
    version: int


class Trainer(TypedDict, closed=True):
    """
    The trainer of a model and its settings.
    """

    alpha: NotRequired[float | None]
    attributes: NotRequired[bool | None]
    engine: NotRequired[str]
    iterations: NotRequired[int | None]
    limits: NotRequired[TrainerLimits]
    prior_scale: NotRequired[float | None]
    regularization: NotRequired[float | None]


class Triggers(TypedDict, closed=True):
    """
    Triggers that retrain a model automatically, or search for settings of it. A trigger that is missing or null is
    off; without any, a model is retrained on request only.
    """

    cool_down: NotRequired[float]
    drift: NotRequired[DriftTrigger | None]
    popularity: NotRequired[PopularityTrigger | None]
    schedule: NotRequired[ScheduleTrigger | None]
    study: NotRequired[StudyTrigger | None]
    threshold: NotRequired[ThresholdTrigger | None]
    volume: NotRequired[VolumeTrigger | None]


class TriggersChange(TypedDict, closed=True):
    """
    Triggers to set, or to turn off by null; missing fields stay unchanged.
    """

    cool_down: NotRequired[float | None]
    drift: NotRequired[DriftTrigger | None]
    popularity: NotRequired[PopularityTrigger | None]
    schedule: NotRequired[ScheduleTrigger | None]
    study: NotRequired[StudyTrigger | None]
    threshold: NotRequired[ThresholdTrigger | None]
    volume: NotRequired[VolumeTrigger | None]


class UserEvent(TypedDict):
    """
    One event of a user.
    """

    context: NotRequired[ContextFields | None]
    feedback: NotRequired[str | None]
    item: NotRequired[Id | None]
    kind: UserEventKind
    label: float
    observation_id: Id
    predicted: NotRequired[float | None]
    sequence: int
    timestamp: int
    user_epoch: int
    weight: float


class UserPage(TypedDict):
    """
    A page of users.
    """

    next: NotRequired[Id | None]
    users: list[ListedUser]


class Version(TypedDict):
    """
    A version.
    """

    active: bool
    algorithm: str
    created: int
    dim: int
    erased_users: int
    gate: NotRequired[GateReport | None]
    half_life: NotRequired[float | None]
    items: int
    label_range: NotRequired[list[float] | None]
    metrics: dict[str, float]
    parent: NotRequired[int | None]
    parts: list[VersionPart]
    pinned: bool
    rollback_target: bool
    version: int
    warm_from: NotRequired[int | None]
    warning: NotRequired[str | None]
    watermark: NotRequired[list[int] | None]


class VersionList(TypedDict):
    """
    All versions, newest first.
    """

    versions: list[Version]


class BoostBody(TypedDict, closed=True):
    """
    A boost of items.
    """

    add: float
    filter: Filter


class ClusterMap(TypedDict):
    """
    The map of a cluster, as this node knows it.
    """

    coordinator: NotRequired[Name | None]
    node: Name
    nodes: list[ClusterNode]
    revision: Revision
    shards: list[ClusterShard]


class ClusterState(TypedDict):
    """
    The logs and the nodes of a cluster, as one node knows them.
    """

    cluster: str
    failure: NotRequired[str | None]
    incarnation: int
    logs: list[LogState]
    nodes: list[NodeState]


class DecisionReply(TypedDict):
    """
    A decision.
    """

    candidates: Candidates
    context: NotRequired[ContextFields | None]
    decision_id: Id
    model: Name
    outcomes: list[Outcome]
    policy: NotRequired[RecordedPolicy | None]
    pool: bool
    pool_share: NotRequired[float | None]
    replay: NotRequired[Replay | None]
    seed: int
    seed_given: bool
    selection: NotRequired[SelectionOfArm | None]
    slots: list[DecisionSlot]
    timestamp: int
    user: Id
    user_epoch: int
    version: int


Diff = TypedDict(
    'Diff',
    {
        'from': Version,
        'items_added': DifferentItems,
        'items_removed': DifferentItems,
        'loss': NotRequired[Comparison | None],
        'measure': Metric,
        'rankings': NotRequired[Rankings | None],
        'to': Version,
    },
)


EvaluateBody = TypedDict(
    'EvaluateBody',
    {
        'from': NotRequired[Time | None],
        'max_decisions': NotRequired[int | None],
        'missing_reward': NotRequired[float | None],
        'policy': PolicyOrUniform,
        'seed': NotRequired[int | None],
        'switch_threshold': NotRequired[float | None],
        'to': NotRequired[Time | None],
    },
    closed=True,
)


class IngestList(TypedDict):
    """
    The ingests of a node.
    """

    ingests: list[IngestStatus]


class Model(TypedDict):
    """
    A model.
    """

    active_version: int
    candidates: int
    context_fields: list[ContextFieldOfStream]
    created: int
    default_reward: NotRequired[DefaultReward | None]
    dim: int
    features: NotRequired[list[PartOfFeatures]]
    gate: Gate
    guard: Guard
    guarding: NotRequired[Guarding | None]
    half_life: NotRequired[float | None]
    id: int
    items: int
    keep_versions: int
    kind: ModelKind
    label_range: NotRequired[list[float] | None]
    labels_outside: LabelsOutside
    loss: Loss
    name: Name
    observations: int
    policy: Policy
    pool_share: float
    recent_loss: NotRequired[RecentLoss | None]
    stream: Name
    trainer: Trainer
    triggers: Triggers
    versions: int


class ModelChange(TypedDict, closed=True):
    """
    Settings to change. Missing fields stay unchanged.
    """

    candidates: NotRequired[int | None]
    default_reward: NotRequired[DefaultReward | None]
    features: NotRequired[list[PartOfFeatures] | None]
    gate: NotRequired[Gate | None]
    guard: NotRequired[Guard | None]
    half_life: NotRequired[float | None]
    keep_versions: NotRequired[int | None]
    label_range: NotRequired[list[float] | None]
    labels_outside: NotRequired[LabelsOutside | None]
    policy: NotRequired[PolicyOrName | None]
    pool_share: NotRequired[float | None]
    trainer: NotRequired[Trainer | None]
    triggers: NotRequired[TriggersChange | None]


ModelOrSelection: TypeAlias = Model | Selection | Unavailable


class NewModel(TypedDict, closed=True):
    """
    A model to create.
    """

    candidates: NotRequired[int | None]
    default_reward: NotRequired[DefaultReward | None]
    dim: NotRequired[int | None]
    features: NotRequired[list[PartOfFeatures] | None]
    gate: NotRequired[Gate | None]
    guard: NotRequired[Guard | None]
    half_life: NotRequired[float | None]
    keep_versions: NotRequired[int | None]
    kind: NotRequired[ModelKind]
    label_range: NotRequired[list[float] | None]
    labels_outside: NotRequired[LabelsOutside | None]
    loss: NotRequired[Loss | None]
    name: NameOrInteger
    policy: NotRequired[PolicyOrName | None]
    pool_share: NotRequired[float | None]
    stream: NotRequired[NameOrInteger | None]
    trainer: NotRequired[Trainer | None]
    triggers: NotRequired[Triggers | None]


NewModelOrSelection: TypeAlias = NewModel | NewSelectionBody


class ObservedArray(TypedDict):
    """
    The reply to an array of observations.
    """

    results: list[ObservedResult]
    summary: LineCounts


class PersonalizerRankSlotsBody(TypedDict, closed=True):
    """
    The same for several slots.
    """

    actions: list[PersonalizerAction]
    contextFeatures: NotRequired[list[dict[str, Any]] | None]
    deferActivation: NotRequired[bool | None]
    eventId: NotRequired[IdOrInteger | None]
    slots: list[PersonalizerSlot]


class PersonalizerRewardSlotsBody(TypedDict, closed=True):
    """
    The rewards of slots.
    """

    reward: list[PersonalizerSlotReward]


class PipelineBody(TypedDict):
    """
    A pipeline: operators over the attributes of an item, the context of a request, and each other's values.
    """

    name: Name
    nodes: dict[str, PipelineNode]
    output: str


class RecommendBody(TypedDict, closed=True):
    """
    The audience of a recommendation, and how to choose items.
    """

    aggregate: NotRequired[AggregateBody | None]
    attributes: NotRequired[dict[str, Any]]
    boost: NotRequired[list[BoostBody]]
    consistency: NotRequired[Consistency]
    context: NotRequired[ContextFields | None]
    diversity: NotRequired[float | None]
    exclude: NotRequired[list[IdOrInteger]]
    exclude_seen: NotRequired[SeenForm]
    filter: NotRequired[Filter | None]
    history: NotRequired[list[PastBody] | None]
    k: int
    min_epoch: NotRequired[int | None]
    page: NotRequired[str | None]
    policy: NotRequired[PolicyOrName | None]
    seed: NotRequired[int | None]
    segment: NotRequired[NameOrInteger | None]
    user: NotRequired[IdOrInteger | None]
    users: NotRequired[list[IdOrInteger] | None]


class RecommendReply(TopkReply):
    """
    A ranking, best first, and the token of the next page.
    """

    next: NotRequired[str | None]
    reason: NotRequired[EmptyReason | None]
    reason_detail: NotRequired[str | None]
    unknown_attributes: NotRequired[list[UnknownAttribute]]


class StudyDescription(StudySummary):
    """
    A study.
    """

    collaborative: bool
    importance: dict[str, float]
    lease_seconds: int
    patience: NotRequired[int | None]
    remote_workers: int
    sampler: Sampler
    seconds: NotRequired[int | None]
    space: dict[str, Axis]
    trials: list[StudyTrial]
    workers: int


class StudyList(TypedDict):
    """
    The studies of a model, the latest first.
    """

    studies: list[StudySummary]


class User(TypedDict):
    """
    A user's state and history.
    """

    attributes: NotRequired[dict[str, Any]]
    cold: bool
    history: list[UserEvent]
    observations: int
    state_hash: str
    user: Id
    user_epoch: int
    version: int
    weights: list[float]


class ClusterReply(TypedDict):
    """
    The nodes of a cluster and their users.

    A user is in partition `xxh3_64(id) mod 64`, with seed 0 over the bytes of the id. Clients that
    send requests to the owner of that partition save a hop; every node answers all of them.
    """

    enabled: bool
    map: NotRequired[ClusterMap]
    status: NotRequired[ClusterState]


class ModelList(TypedDict):
    """
    All models.
    """

    models: list[ModelOrSelection]


class Pipeline(TypedDict):
    """
    A declared pipeline.
    """

    context_fields: list[str]
    declaration: PipelineBody
    declared: int
    depends_on: Dependence
    dim: NotRequired[int | None]
    fingerprint: str
    item_fields: list[str]
    name: Name
    plan: NotRequired[PipelinePlan | None]
    revision: int
    unfitted: list[str]
