# The image of Limpet, made from this repository alone:
#   docker build -t limpet .                                    for your own server: deploy/Dockerfile begins with it
#   docker build -t limpet-programs --target programs .         with uv, node and git, for servers that uvx and npx start
# Both run as the user 10001 and write to /tmp only, and the second one to /cache:
#   docker run --read-only --tmpfs /tmp --cap-drop ALL -p 127.0.0.1:8000:8000 limpet serve …
FROM python:3.13-slim AS build
WORKDIR /src
# What the lock files have, and nothing else. They come first: a change of our code downloads nothing.
COPY tools/locks/runtime.txt tools/locks/image.txt tools/locks/
RUN pip install --no-cache-dir --require-hashes -r tools/locks/runtime.txt \
 && python -m venv --without-pip /opt/limpet \
 && pip --python /opt/limpet/bin/python install --no-cache-dir --require-hashes -r tools/locks/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m build --wheel --no-isolation --outdir dist . \
 && pip --python /opt/limpet/bin/python install --no-cache-dir --no-deps dist/*.whl

FROM python:3.13-slim AS base
COPY --from=build /opt/limpet /opt/limpet
RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp limpet
ENV PATH=/opt/limpet/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001
EXPOSE 8000
# For a server at port 8000 without TLS. Kubernetes has its own probes.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["limpet"]
CMD ["--help"]

FROM node:22-slim AS node

FROM base AS programs
USER 0
# hadolint ignore=DL3008 # git of this Debian, with its security updates
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git \
 && rm -rf /var/lib/apt/lists/*
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
COPY tools/locks/programs.txt /tmp/programs.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/programs.txt \
 && rm /tmp/programs.txt \
 && ln -s /usr/local/lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
 && ln -s /usr/local/lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
 && install --directory --owner 10001 /cache
ENV UV_CACHE_DIR=/cache/uv \
    UV_TOOL_DIR=/cache/tools \
    UV_PYTHON_DOWNLOADS=never \
    npm_config_cache=/cache/npm
VOLUME /cache
USER 10001

# The last stage is the one without a name on the command line.
FROM base AS limpet
