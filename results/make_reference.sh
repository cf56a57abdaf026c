#!/bin/sh
# Measures all-MiniLM-L6-v2 on the standard library and on the real sets of a data root, and puts
# the records under results/reference. The data root is HARNESS_DATA, else ../shared/datasets.
# Whatever goes wrong, the records that are there stay.
set -eu
cd "$(dirname "$0")/.."
harness=${HARNESS:-.venv/bin/harness}
data=${HARNESS_DATA:-../shared/datasets}
made=build/reference

if [ ! -d "$data/mteb" ]; then
    echo "$data holds no data sets of mteb: set HARNESS_DATA to a data root that does" >&2
    exit 1
fi

rm -rf "$made"
measure() { "$harness" run --model minilm --results "$made/results" --cache "$made/cache" "$@"; }
measure --suite stdlib
measure --data "$data" --offline \
    --suite mteb:STSBenchmark --suite mteb:STS12 --suite mteb:STS13 --suite mteb:SciFact \
    --suite mteb:Banking77Classification --suite mteb:EmotionClassification \
    --suite mteb:TweetSentimentExtractionClassification --suite mteb:PoemSentimentClassification
measure --data "$data" --offline --languages eng --splits test \
    --suite mteb:SIB200Classification --suite mteb:SIB200ClusteringS2S

rm -rf results/reference.new
mkdir results/reference.new
cp -r "$made/results/records" results/reference.new/records
find results/reference.new -name '*.parquet' -delete
rm -rf results/reference
mv results/reference.new results/reference
