#!/bin/sh
# Measures all-MiniLM-L6-v2 on the standard library and on the real sets of a data root, and puts
# the records under results/reference. The data root is HARNESS_DATA, else ../shared/datasets.
set -eu
cd "$(dirname "$0")/.."
harness=${HARNESS:-.venv/bin/harness}
data=${HARNESS_DATA:-../shared/datasets}
made=build/reference

rm -rf "$made"
"$harness" run --model minilm --suite stdlib --results "$made/results" --cache "$made/cache"
if [ -d "$data" ]; then
    "$harness" run --model minilm --data "$data" --offline --results "$made/results" --cache "$made/cache" \
        --suite mteb:STSBenchmark --suite mteb:STS12 --suite mteb:STS13 --suite mteb:SciFact \
        --suite mteb:Banking77Classification --suite mteb:EmotionClassification \
        --suite mteb:TweetSentimentExtractionClassification --suite mteb:PoemSentimentClassification
    "$harness" run --model minilm --data "$data" --offline --results "$made/results" --cache "$made/cache" \
        --languages eng --splits test --suite mteb:SIB200Classification --suite mteb:SIB200ClusteringS2S
else
    echo "no data root at $data: only the standard library was measured" >&2
fi

rm -rf results/reference
mkdir -p results/reference
cp -r "$made/results/records" results/reference/records
find results/reference -name '*.parquet' -delete
