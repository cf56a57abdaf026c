"""NeoBERT's instructions: Table 7 for training, Tables 8 and 9 with the field tags of its code for MTEB."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SIMILAR = "Retrieve semantically similar text."
_NEWS = "Given a news title, retrieve relevant articles."
_MEDICAL = "Given a medical question, retrieve {} answer the question."
_DUPLICATES = "Retrieve duplicate questions from {} forum."
_CLAIM = "Given a claim, retrieve documents that support or refute the claim."
_HOPS = "Given a multi-hop question, retrieve documents that can help answer the question."
_PASSAGES = "Given a web search query, retrieve relevant passages that answer the query."
_WIKIPEDIA = "Given a question, retrieve Wikipedia passages that answer the question."

TRAINING: Mapping[str, str] = MappingProxyType(
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


def _tagged(instruction: str, query: str = "", document: str = "") -> tuple[str, str]:
    """An instruction with the field tags of queries and of documents, by default that of queries."""
    tags = (query, document or query)
    first, second = (f"{instruction} {tag}: " if tag else instruction for tag in tags)
    return first, second


_USER = "Given a user utterance, {}."
_CATEGORY = "Identify the main {} based on their {}."
_THEME = "Identify the topic or theme of {}."
_TITLES, _ABSTRACTS = "titles", "titles and abstracts"

_CLASSIFICATION = {
    "AmazonCounterfactualClassification": _tagged(
        "Given an Amazon customer review, classify it as either counterfactual or not-counterfactual.",
        "Review",
    ),
    "AmazonPolarityClassification": _tagged(
        "Given an Amazon review, classify its main sentiment into positive or negative.", "Review"
    ),
    "AmazonReviewsClassification": _tagged(
        "Given an Amazon review, classify it into its appropriate rating category.", "Review"
    ),
    "Banking77Classification": _tagged(
        "Given a online banking query, find the corresponding intents.", "Query"
    ),
    "EmotionClassification": _tagged(
        "Given a Twitter message, classify the emotion expressed into one of the six emotions: anger, fear, "
        "joy, love, sadness, and surprise.",
        "Message",
    ),
    "ImdbClassification": _tagged(
        "Given an IMDB movie review, classify its sentiment into positive or negative.", "Review"
    ),
    "MassiveIntentClassification": _tagged(_USER.format("find the user intents"), "Utterance"),
    "MassiveScenarioClassification": _tagged(_USER.format("find the user scenarios"), "Utterance"),
    "MTOPDomainClassification": _tagged(
        _USER.format("classify the domain in task-oriented conversation"), "Utterance"
    ),
    "MTOPIntentClassification": _tagged(
        _USER.format("classify the intent in task-oriented conversation"), "Utterance"
    ),
    "ToxicConversationsClassification": _tagged(
        "Given comments, classify them as either toxic or not toxic.", "Comments"
    ),
    "TweetSentimentExtractionClassification": _tagged(
        "Given a tweet, classify its sentiment as either positive, negative, or neutral.", "Tweet"
    ),
}

_CLUSTERING = {
    "ArxivClusteringP2P": _tagged(_CATEGORY.format("and secondary category of Arxiv papers", _ABSTRACTS)),
    "ArxivClusteringS2S": _tagged(_CATEGORY.format("and secondary category of Arxiv papers", _TITLES)),
    "BiorxivClusteringP2P": _tagged(_CATEGORY.format("category of Biorxiv papers", _ABSTRACTS)),
    "BiorxivClusteringS2S": _tagged(_CATEGORY.format("category of Biorxiv papers", _TITLES)),
    "MedrxivClusteringP2P": _tagged(_CATEGORY.format("category of Medrxiv papers", _ABSTRACTS)),
    # The blank before the full stop is the authors'.
    "MedrxivClusteringS2S": _tagged(_CATEGORY.format("category of Medrxiv papers", _TITLES + " ")),
    "RedditClustering": _tagged(_THEME.format("Reddit posts based on their titles")),
    "RedditClusteringP2P": _tagged(_THEME.format("Reddit posts based on their titles and posts")),
    "StackExchangeClustering": _tagged(_THEME.format("StackExchange posts based on their titles")),
    "StackExchangeClusteringP2P": _tagged(
        _THEME.format("StackExchange posts based on their given paragraphs")
    ),
    "TwentyNewsgroupsClustering": _tagged(_THEME.format("the given news articles")),
}

_PAIRS = {
    "SprintDuplicateQuestions": _tagged(_DUPLICATES.format("Sprint"), "Question"),
    **dict.fromkeys(
        ("TwitterSemEval2015", "TwitterURLCorpus"),
        _tagged("Given a tweet, retrieve tweets that are semantically similar.", "Tweet"),
    ),
}

_RERANKING = {
    "AskUbuntuDupQuestions": _tagged(_DUPLICATES.format("AskUbuntu"), "Question"),
    "MindSmallReranking": _tagged(
        "Given a user browsing history, retrieve relevant news articles.", "Browsing history", "News article"
    ),
    "SciDocsRR": _tagged(
        "Given a title of a scientific paper, retrieve the titles of other relevant papers.", "Title"
    ),
    "StackOverflowDupQuestions": _tagged(_DUPLICATES.format("StackOverflow"), "Question"),
}

_FORUMS = (
    *("Android", "English", "Gaming", "Gis", "Mathematica", "Physics"),
    *("Programmers", "Stats", "Tex", "Unix", "Webmasters", "Wordpress"),
)

_RETRIEVAL = {
    "ArguAna": _tagged("Given a claim, find documents that refute the claim.", "Claim", "Document"),
    "ClimateFEVER": _tagged(
        "Given a claim about climate change, retrieve documents that support or refute the claim.",
        "Claim",
        "Document",
    ),
    **dict.fromkeys(
        (f"CQADupstack{forum}Retrieval" for forum in _FORUMS),
        _tagged(
            "Given a question, retrieve detailed question descriptions from Stackexchange that are "
            "duplicates to the given question.",
            "Question",
            "Description",
        ),
    ),
    "DBPedia": _tagged(
        "Given a query, retrieve relevant entity descriptions from DBPedia.", "Query", "Entity description"
    ),
    "FEVER": _tagged(_CLAIM, "Claim", "Document"),
    "FiQA2018": _tagged(
        "Given a financial question, retrieve user replies that best answer the question.",
        "Question",
        "Reply",
    ),
    "HotpotQA": _tagged(_HOPS, "Question", "Document"),
    "MSMARCO": _tagged(_PASSAGES, "Query", "Passage"),
    "NFCorpus": _tagged(
        "Given a question, retrieve relevant documents that best answer the question.", "Question", "Document"
    ),
    "NQ": _tagged(_WIKIPEDIA, "Question", "Passage"),
    "QuoraRetrieval": _tagged(
        "Given a question, retrieve questions that are semantically equivalent to the given question.",
        "Question",
    ),
    "SCIDOCS": _tagged(
        "Given a scientific paper title, retrieve paper abstracts that are cited by the given paper.",
        "Title",
        "Abstract",
    ),
    # The blank before the full stop is the authors'.
    "SciFact": _tagged(
        "Given a scientific claim, retrieve documents that support or refute the claim .", "Claim", "Document"
    ),
    "Touche2020": _tagged(
        "Given a question, retrieve detailed and persuasive arguments that answer the question.",
        "Question",
        "Argument",
    ),
    "TRECCOVID": _tagged(
        "Given a query on COVID-19, retrieve documents that answer the query.", "Query", "Document"
    ),
}

_SIMILARITY = {
    # STS17 and STS22 are in the table alone.
    **dict.fromkeys(
        (
            *("SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark"),
            *("STS17", "STS22"),
        ),
        _tagged(_SIMILAR),
    ),
    "BIOSSES": _tagged("Retrieve semantically similar text from the biomedical field."),
    "SummEval": _tagged("Given a news summary, retrieve other semantically similar summaries.", "Summary"),
}

EVALUATION: Mapping[str, tuple[str, str]] = MappingProxyType(
    {**_CLASSIFICATION, **_CLUSTERING, **_PAIRS, **_RERANKING, **_RETRIEVAL, **_SIMILARITY}
)
"""The instructions for queries and for documents of tasks of MTEB(eng, v1), with their field tags.

They are the strings of the code. Its tables differ in the clusterings of Biorxiv and Medrxiv ("main and
secondary category"), in SciDocsRR ("retrieve the relevant papers"), and have no tags but that of ArguAna.
"""

BY_TYPE: Mapping[str, str] = MappingProxyType(
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
    *("BiorxivClusteringP2P", "MedrxivClusteringP2P", "MedrxivClusteringS2S", "StackExchangeClustering"),
    *("StackExchangeClusteringP2P", "TwentyNewsgroupsClustering", "STS22"),
)

_LATER: Mapping[str, str] = {
    **{f"{task}.v2": task for task in _V2},
    **{f"{task}HardNegatives": task for task in ("ClimateFEVER", "FEVER", "HotpotQA")},
    "Touche2020Retrieval.v3": "Touche2020",
    "SummEvalSummarization.v2": "SummEval",
}
"""The tasks of MTEB(eng, v2) that are later forms of others, whose instructions they have here."""


def evaluation_instructions() -> dict[str, str]:
    """The instructions before the texts of tasks by the names of `Encoding.prompt_among`.

    A task has one, or one for each side where they differ; other tasks have that of their type. The
    released code puts instructions only before what reaches `encode_queries` and `encode_corpus`; here the
    texts of every type of task have one.
    """
    tasks = {**EVALUATION, **{task: EVALUATION[former] for task, former in _LATER.items()}}
    sides = {
        name: instruction
        for task, (query, document) in tasks.items()
        for name, instruction in _by_side(task, query, document).items()
    }
    return {**BY_TYPE, **sides}


def _by_side(task: str, query: str, document: str) -> dict[str, str]:
    """The instructions of a task by the names of its prompts."""
    return {task: query} if query == document else {f"{task}-query": query, f"{task}-document": document}
