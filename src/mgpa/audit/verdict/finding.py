"""Findings of an audit as data, with one sentence template for each kind of finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..estimates import Estimate, number
from ..words import label, listed


class Change(NamedTuple):
    """A metric before and after correction, the difference, and the source of the heads if it is one."""

    before: float
    after: float
    difference: Estimate
    heads: str = ""

    def __str__(self) -> str:
        heads = f", heads of {self.heads}" if self.heads else ""
        return f"{number(self.before)} → {number(self.after)} ({self.difference:+.3f}{heads})"


#: Sentence templates by kind of finding; ``{who}`` stands for the methods.
TEMPLATES = {
    # Source information in the uncorrected embeddings.
    "doubtful_pairs": "{what}",
    "revealed": "Your embeddings reveal the {source} (S {S}; chance level up to {chance}).",
    "revealed_between": "Your embeddings reveal the {source}, or how the {units} of one {source} differ "
    "from those of another (S {S}, between {units}; chance level up to {chance}).",
    "hidden": "Your embeddings do not reveal the {source} beyond chance (S {S}; chance level up to "
    "{chance}).",
    # Effects of methods: source-blind leaders, then source-aware leaders.
    "home_falls": "With {who}, existing heads{heads} get worse at home: {metric} {before} → {after} "
    "({change}).",
    "home_falls_advice": "With {who}, existing heads{heads} get worse at home: {metric} {before} → {after} "
    "({change}). To keep a decoder that was trained on {reference}, use MGPA(reference={reference!r}): it "
    "does not move rows that it recognises as {reference}.",
    "serves": "Existing heads{heads} do best with {who}: {metric} {away} on other sources{home}.",
    "serve_alike": "Existing heads{heads} do best with {who}, which are tied: {metric} {away} on other "
    "sources{home}.",
    "leads": "{who} {did}.",
    "leads_aware": "{who}, which needs the source of every row, {did}.",
    "tied": "{who} are tied on {metric} ({values}){did}.",
    "tied_aware": "{who}, which need the source of every row, are tied on {metric} ({values}){did}.",
    "accuracy_improved": "Accuracy of existing heads{heads} on other sources rises by {each}.",
    "accuracy_suffered": "Accuracy of existing heads{heads} on other sources falls by {each}.",
    "model_error": "On other sources, the error of existing models{heads} is {each}, and {before} without "
    "correction (RMSEP).",
    "worse_than_mean": "After correction by {who}, existing models predict worse than the mean does "
    "({explained}; {before} uncorrected){served}.{refitted}",
    "worse_than_mean_advice": "After correction by {who}, existing models predict worse than the mean "
    "does ({explained}; {before} uncorrected){served}.{refitted} To keep existing models, map rows to the "
    "source on which they were trained: MGPA(reference=), FEATMAP, PDS or SST.",
    "unread_task": "The loss of task information cannot be measured: even without correction, heads hardly "
    "decode the task (T_f {T_f}).",
    "lower_but": "{who} has a lower {metric} ({value}), but {reason}.",
    "better_but": "{who} has a better {metric} ({value}), but {reason}.",
    "not_counted": "{who} {did}, but {reason}.",
    "nothing_compared": "Only uncorrected embeddings were audited; there is nothing to compare.",
    "too_few_cell": "No method is called best: every combination of source and label needs at least "
    "{needed}.",
    "too_few": "No method is called best with {now}; at least {needed} are needed.",
    "nothing_to_remove": "The readers find nothing to remove.",
    "not_moved": "No method moved the embeddings.",
    "none_clear": "No method clearly lowered S. The lowest value is {value} ({who}).",
    "none_better": "No method is clearly better on {metric}. The best value is {value} ({who}).",
    "left": "{who} leaves the source clearly readable (S {S}). Its gate has rank {rank} (of {features} "
    "features) and was fitted on {contrasts} contrasts of pairs, from {participants} {units} and {n} "
    "sources. Pairs of more {units} can show more directions.",
    "left_full": "{who} leaves the source clearly readable (S {S}), although its gate spans all {features} "
    "features: sources also differ in ways that a regression between paired views does not remove, such as "
    "noise.",
    "idle": "{who} changed no rows in {n} of {of} fits{why}.",
    "unseen": "On a {source} outside the fit, heads refitted on the other sources reach {values}.",
    "range": "Over {n} random divisions of the {units} into folds, {metric} ranged {ranges}.",
    "range_lead": "Over {n} random divisions of the {units} into folds, {metric} ranged {ranges}; the best "
    "was {lead}.",
    # Certainty.
    "over": "Intervals are over {units}.",
    "enough_separate": "With about {needed} {units}, an audit has 80 % power to separate {who} on {metric}.",
    "never_separate": "More {units} will hardly separate {who} on {metric}.",
    "enough_kept": "With about {needed} {units}, an audit has 80 % power to show that {who} keeps the task "
    "within {margin}.",
    "never_kept": "More {units} will hardly show that {who} keeps the task within {margin}.",
    # One method.
    "no_evidence": "No evidence of an effect: rows were not changed{fits}. {why}",
    "fitted_on": "Not held out: it was fitted on {n} of the {units} it is scored on ({names}), so its "
    "scores are too good. Fit it on FIT {units} only.",
    "fitted_on_copies": "Not held out: rows of {n} of the {units} it is scored on ({names}) are also among "
    "the FIT rows, under another name, so its scores are too good.",
    "fitted_elsewhere": "The map was fitted before this audit, perhaps on these {units}.",
    "unmoved": "Rows were not moved: all numbers equal those of the uncorrected rows.",
    "metric": "{subject} ({metric}): {change}{chance}: {outcome}.",
    "metric_unsure": "{subject} ({metric}): {change}{chance}: {outcome}; the loss may exceed {margin} (95 "
    "%).",
    "metric_kept": "{subject} ({metric}): {change}{chance}: kept; the mean loss is below {margin} (95 %).",
    "source": "Source (S): {change}; chance level up to {chance}: {outcome}.",
    "source_reverses": "Source (S): {change}; chance level up to {chance}: {outcome}. S is below chance: "
    "readers learned a rule that reverses on new {units}.",
    "by_direction": "Existing heads by direction: {changes}.",
    "by_class": "Share of rows that existing heads of all sources classify correctly on other sources: "
    "{changes}.",
    "twin": "Given both views of an event, readers identify the source of each (twin): {change}.",
    "bits": "Source information in the gate, I(U; R | Q): {change} bits per row; in the preserved part, "
    "I(U; Q): {preserved}.",
    "identity": "{units} recognised from their rows (identity): {change}.",
    "refitted": "Changes with intervals that include the variation of the fit ({n} fits on half of the "
    "FIT {units} each): {changes}.",
    "part": "{units} {which}: S {change}.",
    "floor": "Floor: readers recognise the source from the part that the gate preserves with AUROC {floor}.",
    "floor_explains": "Floor: readers recognise the source from the part that the gate preserves with AUROC "
    "{floor}; S is not clearly higher. Pairs of more {units} can add directions and may lower the "
    "floor{ranks}.",
    "linear": "Linear readers reach AUROC {linear}{chance}.",
    "beyond_linear": "Linear readers reach AUROC {linear}{chance}; the rest is in spread and shape (best "
    "reader: {reader}).",
    "beyond_linear_advice": "Linear readers reach AUROC {linear}{chance}; the rest is in spread and shape "
    "(best reader: {reader}). Try mgpa.MGPA.",
    "worst": "Worst-case AUROC of a head trained on the shortcut: {change}.",
    "moved": "Rows moved by {percent} % of their size.",
}


@dataclass(frozen=True)
class Finding:
    """A finding of an audit: its kind, its methods, and the values for its sentence template."""

    kind: str
    methods: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        who = listed(map(label, self.methods)) if self.methods else ""
        words = {name: number(v) if isinstance(v, float) else v for name, v in self.facts.items()}
        return TEMPLATES[self.kind].format(who=who, **words)
