// A server in version 1 of the TypeScript SDK, on $PORT, with the tool `steps`: transports with sessions, each with an event store in memory (the
// package has none outside its examples). SDK is the directory with its node_modules.
import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { setTimeout } from 'node:timers/promises';

const load = createRequire(`${process.env.SDK}/`);
const { McpServer } = load('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { z } = load('zod');

function build() {
  const server = new McpServer({ name: 'compared', version: '1' });
  const step = { nonce: z.string() };
  server.registerTool('steps', { description: 'Take five steps, and note the start of the run.', inputSchema: step }, async ({ nonce }, extra) => {
    appendFileSync(process.env.RUNS, `${nonce}\n`);
    const progressToken = extra._meta?.progressToken;
    for (let progress = 1; progress <= 5; progress++) {
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 5 } });
      await setTimeout(50);
    }
    return { content: [{ type: 'text', text: nonce }] };
  });
  return server;
}

class Events {
  events = new Map();
  async storeEvent(streamId, message) {
    const id = randomUUID();
    this.events.set(id, { streamId, message });
    return id;
  }
  async getStreamIdForEventId(id) {
    return this.events.get(id)?.streamId;
  }
  async replayEventsAfter(last, { send }) {
    const streamId = this.events.get(last)?.streamId ?? '';
    let found = false;
    for (const [id, event] of this.events) {
      if (found && event.streamId === streamId) await send(id, event.message);
      found ||= id === last;
    }
    return streamId;
  }
}

const transports = new Map();

async function answer(request, response) {
  const id = request.headers['mcp-session-id'];
  let transport = transports.get(id);
  if (!transport && id) {
    const error = { jsonrpc: '2.0', id: null, error: { code: -32001, message: 'Session not found' } };
    response.writeHead(404, { 'Content-Type': 'application/json' }).end(JSON.stringify(error));
    return;
  }
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (made) => transports.set(made, transport),
      onsessionclosed: (gone) => transports.delete(gone),
      eventStore: new Events(),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response);
}

createServer((request, response) => {
  // Without this, a client that goes away during its request ends the process.
  answer(request, response).catch(() => (response.headersSent ? response.destroy() : response.writeHead(500).end()));
}).listen(Number(process.env.PORT), '127.0.0.1');
