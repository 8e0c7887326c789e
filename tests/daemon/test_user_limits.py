"""What promises take of the machine: of a user, of an account, and for nothing."""

from scene import ANN, BOB, T0, Scene

from rtsched.adapters.live import CompletionStatus
from rtsched.daemon.settings import DaemonSettings

HOUR = 3600.0
WHOLE = {"size": 4, "wall_time": 10 * HOUR}


def cancelled(scene: Scene, number: int, now: float) -> None:
    """Have a poll show that a job was cancelled while it waited."""
    scene.poll(now, completions=((number, T0, CompletionStatus.FAILED),))


def test_whoever_cancels_promises_of_the_whole_machine_gets_no_more_of_them_for_an_hour() -> None:
    """After four; small ones hardly count, and other users are not concerned."""
    for job, most in ((WHOLE, 4), ({"size": 1, "wall_time": 60.0}, 30)):
        scene, accepted = Scene(), 0
        for number in range(30):
            now = T0 + 3.0 * number
            judged = scene.submit(now, deadline=now + 30 * HOUR, **job)
            if judged.verdict != "admit":
                assert judged.codes == ("submit.unused",)
                assert "cancelled before it started" in judged.reply.text
                break
            accepted += 1
            scene.poll(now + 1, queued=((10 + number, judged.reply.token),))
            cancelled(scene, 10 + number, now + 2)
        assert accepted == most
        assert scene.submit(T0 + 99, BOB, deadline=T0 + 40 * HOUR, **WHOLE).verdict == "admit"


def test_a_workflow_that_is_cancelled_at_once_counts_as_the_whole_machine_at_most() -> None:
    """Its user may submit it again."""
    scene = Scene()
    tokens = [
        scene.submit(T0, size=1, wall_time=HOUR, deadline=T0 + 30 * HOUR).reply.token
        for _ in range(40)
    ]
    scene.poll(T0 + 3, queued=tuple((10 + k, token) for k, token in enumerate(tokens)))
    ended = tuple((10 + k, T0, CompletionStatus.FAILED) for k in range(40))
    scene.poll(T0 + 5, completions=ended)
    assert len(scene.site.unused_by(ANN, T0 + 5, "firm")) == 5


def test_a_job_that_ran_counts_for_nothing(scene: Scene) -> None:
    """It had the machine."""
    judged = scene.submit(deadline=T0 + 30 * HOUR, **WHOLE)
    token = judged.reply.token
    scene.poll(T0 + 1, queued=((9, token),))
    scene.poll(T0 + 2, running=((9, token, T0 + 1, T0 + 10 * HOUR, (0, 1, 2, 3)),))
    scene.poll(T0 + 4, completions=((9, T0 + 3, CompletionStatus.FAILED),))
    assert scene.site.unused_by(ANN, T0 + 4, "firm") == []


def test_the_default_admits_a_workflow_of_a_thousand_jobs() -> None:
    """And of one user half of a week of the machine."""
    settings = DaemonSettings()
    assert settings.promises_per_user >= 1000
    assert (settings.promised_share_per_user, settings.promised_share_per_account) == (0.5, 1.0)


def test_promises_to_a_user_and_to_an_account_take_their_shares_at_most() -> None:
    """Four nodes have 672 node-hours a week."""
    scene = Scene(promised_share_per_user=0.1, promised_share_per_account=0.15)
    wide = {"size": 4, "wall_time": 10 * HOUR, "deadline": T0 + 1000 * HOUR}
    assert scene.submit(account="a", **wide).verdict == "admit"
    refused = scene.submit(account="b", **wide)
    assert refused.codes == ("submit.budget",)
    assert "your promises would take more than 10 % of a week of the machine" in refused.reply.text
    assert scene.submit(uid=BOB, account="a", **wide).verdict == "admit"
    refused = scene.submit(uid=1003, account="a", **wide)
    assert "promises to account a would take more than 15 %" in refused.reply.text
    assert scene.submit(uid=1003, account="c", **wide).verdict == "admit"
    assert scene.submit(uid=1004, **wide).verdict == "admit"
    assert scene.submit(account="a", size=4, wall_time=10 * HOUR).verdict == "pass"
