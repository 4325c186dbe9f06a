// The server of the comparison in the TypeScript SDK, on $PORT: 2026-07-28 by createMcpHandler, older clients by transports with
// sessions and an event store in memory (the package has none). PACKAGES is the directory with node_modules.
import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { setTimeout } from 'node:timers/promises';

const load = createRequire(`${process.env.PACKAGES}/`);
const sdk = load('@modelcontextprotocol/server');
const node = load('@modelcontextprotocol/node');
const z = load('zod');

const text = (said) => ({ content: [{ type: 'text', text: said }] });
let runs = 0;

function build() {
  const server = new sdk.McpServer({ name: 'compared', version: '1' });
  const none = z.object({});
  server.registerTool('look', { description: 'Look around, in four steps.', inputSchema: none, annotations: { readOnlyHint: true } }, async (_, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= 4; progress++) {
      if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 4 } });
      }
      await setTimeout(50);
    }
    return text('seen');
  });
  server.registerTool('slow', { description: 'Return how often this tool was started.', inputSchema: none }, async () => {
    const number = ++runs;
    await setTimeout(800);
    return text(`run ${number}`);
  });
  const step = z.object({ nonce: z.string() });
  server.registerTool('steps', { description: 'Take five steps, and note the start of the run.', inputSchema: step }, async ({ nonce }, ctx) => {
    appendFileSync(process.env.RUNS, `${nonce}\n`);
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= 5; progress++) {
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 5 } });
      await setTimeout(50);
    }
    return text(nonce);
  });
  server.registerTool('ask', { description: 'Ask the user for a name.', inputSchema: none }, async (_, ctx) => {
    const requestedSchema = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] };
    const answer = await ctx.mcpReq.elicitInput({ mode: 'form', message: 'Your name?', requestedSchema });
    return text(`hello ${answer.content.value}`);
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

async function withSession(request, response, body) {
  const id = request.headers['mcp-session-id'];
  let transport = transports.get(id);
  if (!transport && id) {
    const error = { jsonrpc: '2.0', id: null, error: { code: -32001, message: 'Session not found' } };
    response.writeHead(404, { 'Content-Type': 'application/json' }).end(JSON.stringify(error));
    return;
  }
  if (!transport) {
    transport = new node.NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (made) => transports.set(made, transport),
      onsessionclosed: (gone) => transports.delete(gone),
      eventStore: new Events(),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

const validHost = node.localhostHostValidation();
const validOrigin = node.localhostOriginValidation();
const modern = node.toNodeHandler(sdk.createMcpHandler(build, { legacy: 'reject' }));

async function answer(request, response) {
  if (!validHost(request, response) || !validOrigin(request, response)) return;
  if (request.method !== 'POST') return withSession(request, response);
  let body;
  try {
    body = await (await node.toWebRequest(request)).json();
  } catch (error) {
    response.writeHead(error.status ?? 400).end();
    return;
  }
  const legacy = await sdk.isLegacyRequest(await node.toWebRequest(request, body));
  await (legacy ? withSession : modern)(request, response, body);
}

createServer((request, response) => {
  // Without this, a client that goes away during its request ends the process.
  answer(request, response).catch(() => (response.headersSent ? response.destroy() : response.writeHead(500).end()));
}).listen(Number(process.env.PORT), '127.0.0.1');
