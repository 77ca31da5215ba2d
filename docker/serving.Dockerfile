# Serves SavedModels with the conventions of the image tensorflow/serving.
# From the repository's root: docker build -f docker/serving.Dockerfile -t hotrow-serving .
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3
WORKDIR /src
COPY .ci/debian-packages .ci/requirements .ci/
RUN .ci/debian-packages python3 build
COPY setup.cfg pyproject.toml ./
RUN python3 -m venv /opt/hotrow \
    && .ci/requirements install build > requirements.txt \
    && /opt/hotrow/bin/pip install --no-cache-dir -r requirements.txt
COPY . .
# In the environment itself: the native part links the TensorFlow that will run. What only a build
# needs goes, TensorFlow's headers (430 MB) included.
RUN PATH="/opt/hotrow/bin:$PATH" pip install --no-cache-dir --no-build-isolation --no-deps . \
    && rm -rf /opt/hotrow/lib/python3*/site-packages/tensorflow/include \
    && /opt/hotrow/bin/pip uninstall -y cmake nanobind ninja pip

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libfarmhash0 libgnutls30 liblmdb0 libsimdjson14 python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir / hotrow \
    && install -d -o hotrow -g hotrow /models
COPY --from=build /opt/hotrow /opt/hotrow
COPY docker/serving/ /usr/local/bin/
ENV PATH=/opt/hotrow/bin:$PATH \
    MODEL_NAME=model \
    MODEL_BASE_PATH=/models \
    GRPC_PORT=8500 \
    PORT=8501
EXPOSE 8500 8501
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["server-is-ready"]
ENTRYPOINT ["serving-entrypoint"]
