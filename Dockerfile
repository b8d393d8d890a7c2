# The image of `scaling-limits manifest`: docker build --build-arg EXTRA=tpu --tag REGISTRY/scaling-limits:TAG .
# EXTRA is tpu or cuda. Versions are those of the lock files. For hosts with Arm processors (GB200), add
# --platform linux/arm64.
FROM python:3.12-slim
ARG EXTRA=tpu
WORKDIR /opt/scaling-limits
# A compiler for factorizations on CPUs.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY requirements.lock requirements-tpu.lock requirements-cuda.lock ./
# requirements.lock also contains development tools, so it is only a constraint. The other packages are those of the
# extras buckets and data.
RUN pip install --no-cache-dir --requirement requirements-${EXTRA}.lock --constraint requirements.lock \
  obstore grain sentencepiece
COPY pyproject.toml README.md LICENSE scaling_limits.py ./
COPY analysis ./analysis
COPY conf ./conf
COPY harness ./harness
COPY results ./results
COPY sweeps ./sweeps
COPY workloads ./workloads
RUN pip install --no-cache-dir --no-deps . && useradd --create-home --uid 1000 study
WORKDIR /home/study
USER 1000
ENTRYPOINT ["scaling-limits"]
