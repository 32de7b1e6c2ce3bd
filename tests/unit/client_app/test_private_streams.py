"""Streams under local noise: what leaves a client has noise, or does not leave it."""

import json
import math

import numpy as np
import pytest
from forager.core.log.events import as_events
from forager.core.wire.keys import ARRAYS, ESTIMATE, INGEST, NUM_EXAMPLES, PLAN, SECONDS
from forager.strategies.federation.accountant import gaussian_epsilon
from forager.strategies.layers.privacy import together
from forager.strategies.layers.streams import Streams
from forager.tools.engine.local import run_local
from test_client_supports import ask, context_of, model_of

KEYS = {"strategy": "ode", "num-clients": 4, "local-epochs": 1, "ode.coordinate": False}
NOISE = {"ode.noise": 0.3, "ode.noise-clip": 0.5}
PRIVATE = KEYS | NOISE | {"privacy": "local-dp"}


def estimate_in(reply):
    return np.asarray(reply.content[ESTIMATE]["estimate"].numpy())


def test_a_reply_has_a_noisy_model_a_noisy_gradient_and_nothing_of_labels():
    reply = ask("train", context_of(PRIVATE), model_of(PRIVATE))
    assert set(reply.content) == {ARRAYS, ESTIMATE, "metrics", "client"}
    assert set(reply.content["metrics"]) <= {NUM_EXAMPLES, SECONDS, "key"}
    open_one = ask("train", context_of(KEYS), model_of(KEYS))
    assert PLAN in open_one.content
    assert reply.content["metrics"][NUM_EXAMPLES] == 10  # what the store holds


def test_the_gradient_is_clipped_and_has_as_much_noise_as_is_set():
    plain = estimate_in(ask("train", context_of(KEYS), model_of(KEYS)))
    noisy = estimate_in(ask("train", context_of(PRIVATE), model_of(PRIVATE)))
    length = np.linalg.norm(plain)
    assert length > 0.5
    noise = noisy - plain * 0.5 / length
    assert noise.std() == pytest.approx(0.3, rel=0.1)
    assert abs(noise.mean()) < 4 * 0.3 / math.sqrt(noise.size)


def test_questions_about_the_stream_are_not_answered():
    reply = ask(INGEST, context_of(PRIVATE))
    assert "would be answered without noise" in reply.error.reason


def test_other_rules_say_nothing_but_a_noisy_model():
    keys = {"data-selector": "reservoir", "num-clients": 4, "privacy": "local-dp"}
    reply = ask("train", context_of(keys), model_of(keys))
    assert set(reply.content) == {ARRAYS, "metrics", "client"}  # the last is its name


def test_a_run_follows_the_noisy_gradients_and_accounts_for_both_releases(tmp_path, monkeypatch):
    seen, plain = [], Streams._report

    def spy(self, estimates):
        plain(self, estimates)
        seen.append((set(estimates), self.gradient.estimate, dict(self._shares)))

    monkeypatch.setattr(Streams, "_report", spy)
    own = {"num-server-rounds": 3, "output-dir": str(tmp_path), "dp.noise-multiplier": 2.0}
    result = run_local({**PRIVATE, **own, "client-selector": "all"})
    assert result.reason == "completed"
    assert [keys for keys, _, _ in seen] == [set("0123")] * 3
    assert all(estimate.ndim and np.isfinite(estimate).all() for _, estimate, _ in seen)
    assert set(seen[-1][2].values()) == {1.0}  # all count the same
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    assert not any('"planned"' in line or f'"{INGEST}"' in line for line in lines)
    spent = [event for event in map(read_event, lines) if event.name == "privacy"][-1]
    # Gaussian noise: two releases with multipliers a and b are one with (1/a^2 + 1/b^2)^-1/2
    both = (2.0**-2 + (0.3 / 0.5) ** -2) ** -0.5
    assert together([2.0, 0.6]) == pytest.approx(both)
    assert spent.epsilon_most == pytest.approx(gaussian_epsilon(1e-5, both / 2, 3))


def read_event(line):
    (event,) = as_events([json.loads(line)])
    return event
