// A read-only tool that takes a moment, in the TypeScript SDK. Variables: PORT; PACKAGES, the directory with node_modules.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { setTimeout } from 'node:timers/promises';

const load = createRequire(`${process.env.PACKAGES}/`);
const { McpServer } = load('@modelcontextprotocol/server');
const { NodeStreamableHTTPServerTransport, localhostHostValidation, localhostOriginValidation } = load('@modelcontextprotocol/node');
const z = load('zod');

function build() {
  const server = new McpServer({ name: 'slow', version: '1' });
  const about = { description: 'Look around.', inputSchema: z.object({}), annotations: { readOnlyHint: true } };
  server.registerTool('look', about, async () => {
    await setTimeout(100);
    return { content: [{ type: 'text', text: 'seen' }] };
  });
  return server;
}

const transports = new Map();
const validHost = localhostHostValidation();
const validOrigin = localhostOriginValidation();
createServer(async (request, response) => {
  if (!validHost(request, response) || !validOrigin(request, response)) return;
  const id = request.headers['mcp-session-id'];
  let transport = transports.get(id);
  if (!transport && id) {
    response.writeHead(404).end();
    return;
  }
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response);
}).listen(Number(process.env.PORT), '127.0.0.1');
