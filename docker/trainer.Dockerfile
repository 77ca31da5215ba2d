# `platform train`, `export` and the other commands. From the repository's root:
#   docker build -f docker/trainer.Dockerfile -t hotrow-trainer .
#   docker build -f docker/trainer.Dockerfile -t hotrow-trainer:gpu --build-arg VARIANT=gpu .
ARG VARIANT=cpu

FROM debian:bookworm-slim AS cpu-build-system

# nvcc 12, as TensorFlow's own CUDA. 80: A100, 90: H100 and H200, 100: B200.
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04 AS gpu-build-system
ARG CUDA_ARCHITECTURES=80;90;100
ENV CMAKE_ARGS="-DHOTROW_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES}'" \
    EXTRAS="gpu"

FROM ${VARIANT}-build-system AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3
WORKDIR /src
COPY .ci/debian-packages .ci/requirements .ci/
RUN .ci/debian-packages python3 build
COPY setup.cfg pyproject.toml ./
# hadolint ignore=SC2086
RUN python3 -m venv /opt/hotrow \
    && .ci/requirements install build ${EXTRAS} > requirements.txt \
    && /opt/hotrow/bin/pip install --no-cache-dir -r requirements.txt
COPY . .
# In the environment itself: the native part links the TensorFlow that will run. What only a build
# needs goes, TensorFlow's headers (430 MB) included.
RUN PATH="/opt/hotrow/bin:$PATH" pip install --no-cache-dir --no-build-isolation --no-deps . \
    && rm -rf /opt/hotrow/lib/python3*/site-packages/tensorflow/include \
    && /opt/hotrow/bin/pip uninstall -y cmake nanobind ninja pip

FROM debian:bookworm-slim AS cpu-system

# The driver's libraries come from the machine, by NVIDIA's container toolkit; CUDA's by pip.
FROM ubuntu:24.04 AS gpu-system
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM ${VARIANT}-system
# The number of libsimdjson differs between Debian and Ubuntu.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libfarmhash0 libgnutls30 liblmdb0 \
       '^libsimdjson[0-9]+' python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir / hotrow \
    && install -d -o hotrow -g hotrow /data /models /runs
COPY --from=build /opt/hotrow /opt/hotrow
ENV PATH=/opt/hotrow/bin:$PATH
WORKDIR /data
USER 10001:10001
ENTRYPOINT ["platform"]
CMD ["--help"]
