#!/bin/bash
# The client: it asks SLURM for the workers' jobs and waits for them, so it needs little and lives longest.
# sbatch slurm.sh /data/big /data/corrected
#SBATCH --job-name=mgpa-client
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=12:00:00
set -euo pipefail
# Activate the environment that has mgpa[scale] and dask-jobqueue, the same one on all nodes:
# source /data/venv/bin/activate
folder=${SLURM_SUBMIT_DIR:-.}
exec python "$folder/correct_table.py" "$1" "$2" --cluster slurm --workers "${WORKERS:-64}"
