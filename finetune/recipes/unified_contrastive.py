"""Contrastive fine-tuning on a mix of data sets with instructions, as NeoBERT has it (Le Breton 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from finetune.embedding.plan import Variant, entry
from finetune.embedding.settings import SuggestedRows, info_nce
from finetune.mix.plan import MixRecipe
from finetune.mix.settings import MixSet, MixSettings
from finetune.origins import MTEB, NEOBERT, read_sources
from finetune.recipes.simcse import NLI
from harness.core.encoding import EvaluationSettings
from harness.data.training.sets import TrainingData
from harness.jobs.recipe import PrintedRow

# Instructions: Table 7 for training, Tables 8 and 9 with the field tags of the authors' code for MTEB

_SIMILAR = "Retrieve semantically similar text."
_NEWS = "Given a news title, retrieve relevant articles."
_MEDICAL = "Given a medical question, retrieve {} answer the question."
_DUPLICATES = "Retrieve duplicate questions from {} forum."
_CLAIM = "Given a claim, retrieve documents that support or refute the claim."
_HOPS = "Given a multi-hop question, retrieve documents that can help answer the question."
_PASSAGES = "Given a web search query, retrieve relevant passages that answer the query."
_WIKIPEDIA = "Given a question, retrieve Wikipedia passages that answer the question."

TRAINING_INSTRUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "AGNEWS": _NEWS,
        "ALLNLI": "Given a premise, retrieve a hypothesis that is entailed by the premise.",
        "AMAZONQA": "Given a question, retrieve Amazon posts that answer the question.",
        "CONCURRENTQA": _HOPS,
        "FEVER": _CLAIM,
        "GITHUBISSUE": "Given a question, retrieve questions from Github that are duplicates to the given "
        "question.",
        "GOOAQ": "Given a question, retrieve relevant documents that best answer the question.",
        "MEDMCQA": _MEDICAL.format("relevant passages that"),
        "MEDMCQA_CLUST": "Identify the main category of medical exams based on their questions and answers.",
        "MSMARCO": _PASSAGES,
        "NPR": _NEWS,
        "PAQ": _WIKIPEDIA,
        "PUBMEDQA": _MEDICAL.format("documents that best"),
        "QQP": "Given a question, retrieve questions from Quora forum that are semantically equivalent to "
        "the given question.",
        "SENTENCECOMP": "Given a sentence, retrieve semantically equivalent summaries.",
        # Ours: the row is blank in the table, and this is the wording of StackOverflow.
        "STACKEXCHANGE": _DUPLICATES.format("StackExchange"),
        "STACKOVERFLOW": _DUPLICATES.format("StackOverflow"),
        "STS12": _SIMILAR,
        "STSBENCHMARK": _SIMILAR,
        "TRIVIAQA": "Given a question, retrieve documents that answer the question.",
        "WIKIHOW": "Given a Wikihow post, retrieve titles that best summarize the post.",
        "YAHOO_CLUST": "Identify the main topic of Yahoo posts based on their titles and answers.",
    }
)
"""The instruction of each training set, for queries and documents alike.

The released training code applies none. It has no loader of AGNEWS, MEDMCQA, MEDMCQA_CLUST, NPR and
YAHOO_CLUST. Its queries of SENTENCECOMP are the compressed sentences, the reverse of the instruction.
"""


_USER = "Given a user utterance, {}. | Utterance"
_CATEGORY = "Identify the main {} based on their {}."
_THEME = "Identify the topic or theme of {}."
_TWEETS = "Given a tweet, retrieve tweets that are semantically similar. | Tweet"

_TITLES, _ABSTRACTS = "titles", "titles and abstracts"

_FORUMS = "Android English Gaming Gis Mathematica Physics Programmers Stats Tex Unix Webmasters Wordpress"

_ALIKE = ("SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "STS17", "STS22")
"""The tasks of pairs with one instruction; STS17 and STS22 are in the table alone."""

_EVALUATION = {
    "AmazonCounterfactualClassification": "Given an Amazon customer review, classify it as either "
    "counterfactual or not-counterfactual. | Review",
    "AmazonPolarityClassification": "Given an Amazon review, classify its main sentiment into positive or "
    "negative. | Review",
    "AmazonReviewsClassification": "Given an Amazon review, classify it into its appropriate rating "
    "category. | Review",
    "Banking77Classification": "Given a online banking query, find the corresponding intents. | Query",
    "EmotionClassification": "Given a Twitter message, classify the emotion expressed into one of the six "
    "emotions: anger, fear, joy, love, sadness, and surprise. | Message",
    "ImdbClassification": "Given an IMDB movie review, classify its sentiment into positive or "
    "negative. | Review",
    "MassiveIntentClassification": _USER.format("find the user intents"),
    "MassiveScenarioClassification": _USER.format("find the user scenarios"),
    "MTOPDomainClassification": _USER.format("classify the domain in task-oriented conversation"),
    "MTOPIntentClassification": _USER.format("classify the intent in task-oriented conversation"),
    "ToxicConversationsClassification": "Given comments, classify them as either toxic or not "
    "toxic. | Comments",
    "TweetSentimentExtractionClassification": "Given a tweet, classify its sentiment as either positive, "
    "negative, or neutral. | Tweet",
    "ArxivClusteringP2P": _CATEGORY.format("and secondary category of Arxiv papers", _ABSTRACTS),
    "ArxivClusteringS2S": _CATEGORY.format("and secondary category of Arxiv papers", _TITLES),
    "BiorxivClusteringP2P": _CATEGORY.format("category of Biorxiv papers", _ABSTRACTS),
    "BiorxivClusteringS2S": _CATEGORY.format("category of Biorxiv papers", _TITLES),
    "MedrxivClusteringP2P": _CATEGORY.format("category of Medrxiv papers", _ABSTRACTS),
    # The blank before the full stop is the authors'.
    "MedrxivClusteringS2S": _CATEGORY.format("category of Medrxiv papers", _TITLES + " "),
    "RedditClustering": _THEME.format("Reddit posts based on their titles"),
    "RedditClusteringP2P": _THEME.format("Reddit posts based on their titles and posts"),
    "StackExchangeClustering": _THEME.format("StackExchange posts based on their titles"),
    "StackExchangeClusteringP2P": _THEME.format("StackExchange posts based on their given paragraphs"),
    "TwentyNewsgroupsClustering": _THEME.format("the given news articles"),
    "SprintDuplicateQuestions": _DUPLICATES.format("Sprint") + " | Question",
    "TwitterSemEval2015": _TWEETS,
    "TwitterURLCorpus": _TWEETS,
    "AskUbuntuDupQuestions": _DUPLICATES.format("AskUbuntu") + " | Question",
    "MindSmallReranking": "Given a user browsing history, retrieve relevant news articles. | Browsing "
    "history | News article",
    "SciDocsRR": "Given a title of a scientific paper, retrieve the titles of other relevant papers. | Title",
    "StackOverflowDupQuestions": _DUPLICATES.format("StackOverflow") + " | Question",
    "ArguAna": "Given a claim, find documents that refute the claim. | Claim | Document",
    "ClimateFEVER": "Given a claim about climate change, retrieve documents that support or refute the "
    "claim. | Claim | Document",
    **dict.fromkeys(
        (f"CQADupstack{forum}Retrieval" for forum in _FORUMS.split()),
        "Given a question, retrieve detailed question descriptions from Stackexchange that are duplicates to "
        "the given question. | Question | Description",
    ),
    "DBPedia": "Given a query, retrieve relevant entity descriptions from DBPedia. | Query "
    "| Entity description",
    "FEVER": _CLAIM + " | Claim | Document",
    "FiQA2018": "Given a financial question, retrieve user replies that best answer the question. | Question "
    "| Reply",
    "HotpotQA": _HOPS + " | Question | Document",
    "MSMARCO": _PASSAGES + " | Query | Passage",
    "NFCorpus": "Given a question, retrieve relevant documents that best answer the question. | Question "
    "| Document",
    "NQ": _WIKIPEDIA + " | Question | Passage",
    "QuoraRetrieval": "Given a question, retrieve questions that are semantically equivalent to the given "
    "question. | Question",
    "SCIDOCS": "Given a scientific paper title, retrieve paper abstracts that are cited by the given paper. "
    "| Title | Abstract",
    # The blank before the full stop is the authors'.
    "SciFact": "Given a scientific claim, retrieve documents that support or refute the claim . | Claim "
    "| Document",
    "Touche2020": "Given a question, retrieve detailed and persuasive arguments that answer the question. "
    "| Question | Argument",
    "TRECCOVID": "Given a query on COVID-19, retrieve documents that answer the query. | Query | Document",
    **dict.fromkeys(_ALIKE, _SIMILAR),
    "BIOSSES": "Retrieve semantically similar text from the biomedical field.",
    "SummEval": "Given a news summary, retrieve other semantically similar summaries. | Summary",
}
"""By task the instruction, the field tag of queries, and that of documents where it is another."""


def _split_sides(row: str) -> tuple[str, str]:
    """The instructions for queries and for documents of a row of the table above."""
    instruction, *tags = row.split(" | ")
    if not tags:
        return instruction, instruction
    return f"{instruction} {tags[0]}: ", f"{instruction} {tags[-1]}: "


EVALUATION_INSTRUCTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {task: _split_sides(row) for task, row in _EVALUATION.items()}
)
"""The instructions for queries and for documents of tasks of MTEB(eng, v1), with their field tags.

They are the strings of the code. Its tables differ in the clusterings of Biorxiv and Medrxiv ("main and
secondary category"), in SciDocsRR ("retrieve the relevant papers"), and have no tags but that of ArguAna.
"""

INSTRUCTIONS_BY_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "STS": _SIMILAR,
        "Summarization": "Given a summary, retrieve semantically similar summaries.",
        "BitextMining": "Retrieve parallel sentences.",
        "Classification": "Given a text, classify it into main categories.",
        "Clustering": "Identify categories based on text passages",
        "Reranking": "Given a query, retrieve relevant texts.",
        "Retrieval": "Given a query, retrieve relevant texts.",
        "PairClassification": "Retrieve text that are semantically similar to the given text.",
    }
)
"""The instruction of all other tasks, by type; tasks of any other type have none."""

_V2 = (
    "BiorxivClusteringP2P",
    "MedrxivClusteringP2P",
    "MedrxivClusteringS2S",
    "StackExchangeClustering",
    "StackExchangeClusteringP2P",
    "TwentyNewsgroupsClustering",
    "STS22",
)

_LATER: Mapping[str, str] = {
    **{f"{task}.v2": task for task in _V2},
    **{f"{task}HardNegatives": task for task in ("ClimateFEVER", "FEVER", "HotpotQA")},
    "Touche2020Retrieval.v3": "Touche2020",
    "SummEvalSummarization.v2": "SummEval",
}
"""The tasks of MTEB(eng, v2) that are later forms of others, whose instructions they have here."""


def list_task_instructions() -> dict[str, str]:
    """The instructions before the texts of tasks by the names of `select_prompt`.

    A task has one, or one for each side where they differ; other tasks have that of their type. The
    released code puts instructions only before what reaches `encode_queries` and `encode_corpus`; here the
    texts of every type of task have one.
    """
    tasks = {
        **EVALUATION_INSTRUCTIONS,
        **{task: EVALUATION_INSTRUCTIONS[former] for task, former in _LATER.items()},
    }
    sides = {
        name: instruction
        for task, (query, document) in tasks.items()
        for name, instruction in _list_side_instructions(task, query, document).items()
    }
    return {**INSTRUCTIONS_BY_TYPE, **sides}


def _list_side_instructions(task: str, query: str, document: str) -> dict[str, str]:
    """The instructions of a task by the names of its prompts."""
    return {task: query} if query == document else {f"{task}-query": query, f"{task}-document": document}


# Recipe


_REVISIONS = {
    "embedding-data/Amazon-QA": "0fc20c674c727972bc3e021723598f34c5650777",
    "stanfordnlp/concurrentqa-retrieval": "ef85d53d778cb3396901a68a06bbfd03f29d2182",
    "mteb/fever": "bea83ef9e8fb933d90a2f1d5515737465d613e12",
    "WhereIsAI/github-issue-similarity": "9d058e4cfbc11d782186a1dbb5031a6509b895e1",
    "tomaarsen/gooaq-hard-negatives": "87594a1e6c58e88b5843afa9da3a97ffd75d01c2",
    "mteb/msmarco": "c5a29a104738b98a9e76336939199e264163d4a0",
    "embedding-data/PAQ_pairs": "04beaebf206b2ddfba715d8307b7cb48c4c01468",
    "sentence-transformers/pubmedqa": "a1ef0b513b16ed490e807ac11da40e436d3a54c3",
    "embedding-data/QQP_triplets": "7fe8a1a01f831bb4e93308403c2eee98f94ca631",
    "embedding-data/sentence-compression": "main",
    "sentence-transformers/stackexchange-duplicates": "1c9657aec12d9e101667bb9593efcc623c4a68ff",
    "mteb/stackoverflowdupquestions-reranking": "ef807ea29a75ec4f91b50fd4191cb4ee4589a9f9",
    "mteb/sts12-sts": "a0d554a64d88156834ff5ae9920b964011b16384",
    "mteb/stsbenchmark-sts": "b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    "sentence-transformers/trivia-qa-triplet": "bfe94607eb149a89fe8107e8c8d187977e587a7d",
    "sentence-transformers/wikihow": "3469d0274945d381528c5fccb3e00680ad72ade1",
    "sentence-transformers/agnews": "e8a1e3d19a3c0c6da937ceaebc94a120b5003b9d",
    "openlifescienceai/medmcqa": "91c6572c454088bf71b679ad90aa8dffcd0d5868",
    "sentence-transformers/npr": "6089338c366623d24681654565832a6296c003d1",
    "community-datasets/yahoo_answers_topics": "6652a1e7c94f7260a0bfd0c9092dd48e2d536ea1",
}
"""The commits of the data sets. Of sentence-compression the newest is taken, and the lineage names it."""


def _build_data_set(path: str, columns: str, **fields: Any) -> TrainingData:
    """A data set; its columns are separated by blanks."""
    return TrainingData(path=path, revision=_REVISIONS[path], columns=tuple(columns.split()), **fields)


def _set_of(name: str, divisor: int, *data: TrainingData, note: str = "") -> MixSet:
    return MixSet(name=name, data=data, divisor=divisor, instruction=TRAINING_INSTRUCTIONS[name], note=note)


def _build_single_set(
    name: str, divisor: int, path: str, columns: str, *, note: str = "", **fields: Any
) -> MixSet:
    """A set of one data set."""
    return _set_of(name, divisor, _build_data_set(path, columns, **fields), note=note)


def _list_negative_columns(count: int) -> str:
    return " ".join(f"negative_{number}" for number in range(1, count + 1))


SENTENCES = _build_data_set("embedding-data/sentence-compression", "set[0] set[1]", rows=180_000)
"""Sentences with their compressions."""

_ISSUES, _TRIVIA = "WhereIsAI/github-issue-similarity", "sentence-transformers/trivia-qa-triplet"
_QUESTIONS = "sentence-transformers/stackexchange-duplicates"
_PARAGRAPHS = "question pos_paras[0].text neg_paras[].text"
_ANSWERS, _ABSTRACT = (
    f"question answer {_list_negative_columns(5)}",
    f"anchor positive {_list_negative_columns(20)}",
)

CODE: tuple[MixSet, ...] = (
    _set_of("ALLNLI", 2, NLI),
    _build_single_set("AMAZONQA", 2, "embedding-data/Amazon-QA", "query pos[0]", rows=1_095_290),
    _build_single_set("CONCURRENTQA", 21, "stanfordnlp/concurrentqa-retrieval", _PARAGRAPHS),
    _build_single_set(
        "FEVER", 2, "mteb/fever", "query-id corpus-id", config="default", judged=True, rows=140_085
    ),
    _build_single_set("GITHUBISSUE", 2, _ISSUES, "anchor positive", config="positive", rows=9_457),
    _build_single_set(
        "GOOAQ", 7, "tomaarsen/gooaq-hard-negatives", _ANSWERS, config="triplet-5", rows=2_286_783
    ),
    _build_single_set(
        "MSMARCO", 2, "mteb/msmarco", "query-id corpus-id", config="default", judged=True, rows=532_751
    ),
    _build_single_set("PAQ", 2, "embedding-data/PAQ_pairs", "set[0] set[1]"),
    _build_single_set("PUBMEDQA", 22, "sentence-transformers/pubmedqa", _ABSTRACT, config="triplet-20"),
    _build_single_set(
        "QQP", 50, "embedding-data/QQP_triplets", "set.query set.pos[0] set.neg[]", rows=101_762
    ),
    _set_of("SENTENCECOMP", 2, replace(SENTENCES, columns=("set[1]", "set[0]"))),
    _set_of(
        "STACKEXCHANGE",
        2,
        _build_data_set(_QUESTIONS, "body1 body2", config="body-body-pair", rows=250_460),
        _build_data_set(_QUESTIONS, "post1 post2", config="post-post-pair", rows=250_519),
        note="its instruction is blank in table 7; that of STACKOVERFLOW, with the other forum's name",
    ),
    _build_single_set(
        "STACKOVERFLOW", 50, "mteb/stackoverflowdupquestions-reranking", "query positive[0] negative[]"
    ),
    _build_single_set("STS12", 2, "mteb/sts12-sts", "sentence1 sentence2", rows=2_234),
    _build_single_set("STSBENCHMARK", 2, "mteb/stsbenchmark-sts", "sentence1 sentence2", rows=5_749),
    _build_single_set("TRIVIAQA", 3, _TRIVIA, "anchor positive negative", config="triplet"),
    _build_single_set("WIKIHOW", 2, "sentence-transformers/wikihow", "text summary", rows=128_543),
)
"""The sets as the released code reads them; a divisor is about the number of texts of a row."""

_TITLED_NEWS = _build_data_set("sentence-transformers/agnews", "title description", rows=1_157_745)
_BROADCASTS = _build_data_set("sentence-transformers/npr", "title body", rows=594_384)
_EXAMS = _build_data_set("openlifescienceai/medmcqa", "question exp", rows=182_822)
_TOPICS = _build_data_set(
    "community-datasets/yahoo_answers_topics", "question_title best_answer", classes="topic", rows=1_400_000
)

NAMED: tuple[MixSet, ...] = tuple(
    replace(one, note=f"the code has no loader of it: {one.note}")
    for one in (
        _set_of("AGNEWS", 2, _TITLED_NEWS, note="titles with their descriptions"),
        _set_of("MEDMCQA", 2, _EXAMS, note="questions with the explanations of their answers"),
        _set_of(
            "MEDMCQA_CLUST",
            8,
            replace(_EXAMS, classes="subject_name"),
            note="two questions of one subject, each with its explanation; no two of a group are of one "
            "subject",
        ),
        _set_of("NPR", 2, _BROADCASTS, note="titles with their articles"),
        _set_of(
            "YAHOO_CLUST",
            16,
            _TOPICS,
            note="two posts of one of ten topics, each with its answer; no two of a group are of one topic",
        ),
    )
)
"""Sets that the paper names and the code does not read; how they are read, and their divisors, are ours."""


def _apply_paper_text(mix_set: MixSet) -> MixSet:
    """A set as the paper has it: compressions as the instruction says, and pairs of STS that belong together.

    The text names no score from which on they do: above 4 is what the code selects, and then does not use.
    """
    if mix_set.name.startswith("STS"):
        data = (replace(mix_set.data[0], filter=("score", ">", 4.0), rows=None),)
        note = "pairs with a score above 4, which the code selects and then does not use; the text has none"
        return replace(mix_set, data=data, note=note)
    if mix_set.name == "SENTENCECOMP":
        return replace(mix_set, data=(SENTENCES,))
    return mix_set


TEXT: tuple[MixSet, ...] = (*map(_apply_paper_text, CODE), *NAMED)
"""The sets as the text has them."""

SETTINGS = MixSettings(
    batch_size=128,
    groups=4,
    alpha=0.5,
    draws="replacement",
    reduction="mean",
    instructions="both",
    dropout=0.1,
    max_steps=2_000,
    epochs=1,
    pooling="mean",
    max_length=1024,
    scale=1 / 0.07,
    learning_rate=1e-4,
    weight_decay=0.01,
    decay_all=True,
    betas=(0.9, 0.95),
    eps=1e-8,
    warmup=0.1,
    schedule="cosine_to_tenth",
    clip=1.0,
    precision="bfloat16",
    batches="shuffled",
    chunk=SuggestedRows(32),
)
"""The values of the text, and those of the released code where it is silent."""

RELEASED = replace(
    SETTINGS, instructions="none", reduction="sum", warmup=2_000, schedule="constant", dropout=0.0
)
"""The values of the released code, of which 2,000 steps are the warmup alone."""

EVALUATION = EvaluationSettings(max_length=1024, dtype="float16")
"""The length and autocast of the code's run on MTEB; vectors are not normalized."""

EVALUATIONS = {"": EVALUATION, "released": replace(EVALUATION, prompts={})}
"""With the instructions of training, and as the released `run_mteb.py` runs, without any."""

VARIANTS: dict[str, Variant[MixSettings]] = {
    "code": Variant(
        summary="the released code: no instructions, sums over batches, all pairs of STS, warmup to the end",
        settings=RELEASED,
    ),
    "job": Variant(
        summary="its job script: alpha 0.1, batches of 32, in which two sets have no row until left out",
        settings=replace(RELEASED, alpha=0.1, batch_size=32),
    ),
}

SOURCES = read_sources(
    NEOBERT,
    """
    src/neobert/contrastive/datasets.py: data 67
    src/neobert/contrastive/loss.py: loss 33, scale 9
    conf/optimizer/adamw.yaml: learning_rate 3, weight_decay 6, betas 4, eps 5
    conf/finetuning.yaml: batch_size 34
    src/neobert/contrastive/trainer.py: schedule 172, decay_all 168, pooling 310, draws 236, distinct 133,
        pool_instruction 310
    conf/trainer/contrastive.yaml: clip 7, precision 2, max_steps 12, selection 12
    conf/tokenizer/google.yaml: max_length 3
    jobs/contrastive/finetune.sh: groups 9
    conf/dataset/contrastive.yaml: alpha 4
    conf/mteb.yaml: evaluation.max_length 16
    conf/mteb_task_to_instruction_query.json: prompts 2
    scripts/evaluation/run_mteb.py: evaluation.dtype 180
    [NeoBERT, appendix D.2, table 7]: data
    [NeoBERT, section 5.2.1]: loss
    [NeoBERT, section 5.2.1, table 4]: max_steps
    [NeoBERT, appendix D.2]: scale
    [NeoBERT, table 4]: selection
    [NeoBERT, section 5.2.1, table 7]: instructions
    [NeoBERT, appendix D.3, table 8, table 9]: prompts
    data = five of the sets have no loader in the code; PAQ and QQP are in table 7 and the code, not in the
        list of appendix D.2; the code names no commits: these are the newest that could be found, and of
        Amazon-QA and QQP_triplets those of copies with the same rows
    batch_size = 32 in the job script
    warmup = the code's 2,000 steps are all of the training; the rate begins at 0, there at a ten-thousandth
    schedule = there over 50,000 steps, here over those of the training
    precision = TF32 outside of it (conf/trainer/contrastive.yaml#L1)
    alpha = 0.1 in the job script
    reduction = the formula of section 5.2.1 is of one query; the code sums (loss.py#L9)
    instructions = the released training has none
    pool_instruction = the mask of the tokenizer
    dropout = the trainer refuses 0 (L68), and no other value is told
    seed = 0 in the code (conf/finetuning.yaml#L14, conf/mteb.yaml#L1)
    draws = steps on its pretraining data, which cannot run as released, are left out
    prompts = those of the code's tables, which end in a word for the kind of text, before the texts of every
        type of task; the released run_mteb.py has no option for them
    :code
    src/neobert/contrastive/datasets.py: data 67, instructions 75
    conf/finetuning.yaml: warmup 30
    src/neobert/contrastive/trainer.py: schedule 171
    src/neobert/contrastive/loss.py: reduction 9
    src/neobert/model/model.py: dropout 41
    warmup = the text has none; 2,000 is its number of steps
    schedule = after the warmup a cosine, to which 2,000 steps never come
    instructions = datasets are read as is
    max_steps = 200,000 in conf/trainer/contrastive.yaml#L5
    dropout = the trainer refuses it (L68); with flash attention there is none in any case
    :job
    jobs/contrastive/finetune.sh: alpha 44, batch_size 43
    """,
    {"": MTEB},
)
SOURCES["job"] = {**SOURCES["code"], **SOURCES["job"]}


PRINTED = PrintedRow(
    place="NeoBERT, table 4, ModernBERT base",
    recipe="unified-contrastive",
    model="answerdotai/ModernBERT-base",
    suite="mteb-v1",
    differs=(
        "The paper trains with instructions, its code, which cannot run as released, without: we take the "
        "paper's; unified-contrastive:code is the other",
        "The paper does not print rate, batch and schedule: we take those of its code, for every backbone of "
        "the table, base or large",
    ),
)

RECIPE = entry(
    MixRecipe(
        name="unified-contrastive",
        source="NeoBERT, section 5.2.1 and appendix D; scripts/contrastive of its code",
        data=tuple(part for one in TEXT for part in one.data),
        loss=info_nce,
        settings=SETTINGS,
        defaults=SETTINGS,
        mixes={"": TEXT, "code": CODE, "job": CODE},
        evaluation=list_task_instructions,
    ),
    "Embedding models on a mix of 22 data sets with instructions and hard negatives, as NeoBERT's",
    VARIANTS,
    SOURCES,
    EVALUATIONS,
    [PRINTED],
)
