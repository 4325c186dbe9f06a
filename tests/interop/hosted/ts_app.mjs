// An ordinary server of @modelcontextprotocol/sdk 1.x with the tools of parts.py: node ts_app.mjs [PORT]; without a
// port, on stdio.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../../.node/clients/package.json', import.meta.url));
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { z } = require('zod');

const text = said => ({ content: [{ type: 'text', text: String(said) }] });
const structured = value => ({ content: [{ type: 'text', text: JSON.stringify(value) }], structuredContent: value });
const places = new Map();
let runs = 0;

function meet(name) {
    const place = places.get(name) ?? { waiting: [] };
    places.set(name, place);
    return new Promise(resolve => {
        place.waiting.push(resolve);
        if (place.waiting.length === 3) {
            places.delete(name);
            place.waiting.forEach(go => go());
        }
    });
}

function build() {
    const server = new McpServer({ name: 'hosted', version: '1' });
    const ask = async (message, field) => {
        const requestedSchema = { type: 'object', properties: { [field]: { type: 'string' } }, required: [field] };
        return (await server.server.elicitInput({ message, requestedSchema })).content[field];
    };
    const sampled = async about => {
        const messages = [{ role: 'user', content: { type: 'text', text: `about ${about}` } }];
        return (await server.server.createMessage({ messages, maxTokens: 10 })).content.text;
    };
    server.registerTool('add', { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => text(a + b));
    server.registerTool('process', {}, async () => text(process.pid));
    server.registerTool('meet', { inputSchema: { name: z.string() } }, async ({ name }) => {
        await meet(name);
        return text(name);
    });
    server.registerTool('ticks', { inputSchema: { n: z.number() } }, async ({ n }, extra) => {
        for (let progress = 1; progress <= n; progress++) {
            const progressToken = extra._meta?.progressToken;
            if (progressToken !== undefined) {
                const params = { progressToken, progress, total: n };
                await extra.sendNotification({ method: 'notifications/progress', params });
            }
            await new Promise(resolve => setTimeout(resolve, 20));
        }
        return text(`${n} ticks`);
    });
    server.registerTool('greet', { inputSchema: { color: z.string() } }, async ({ color }) => {
        const name = await ask(`question ${color}`, 'name');
        return text(`${color} ${name} ${await sampled(color)}`);
    });
    server.registerTool('interview', {}, async () => {
        runs += 1;
        const name = await ask('What is your name?', 'name');
        const color = await ask('Which color?', 'color');
        const lines = await Promise.all([0, 1, 2, 3, 4].map(sampled));
        return structured({ name, color, lines, runs });
    });
    return server;
}

const sessions = new Map();

async function answer(request, response) {
    const id = request.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (id !== undefined && transport === undefined) {
        response.writeHead(404).end();
        return;
    }
    if (transport === undefined) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: key => sessions.set(key, transport),
        });
        transport.onclose = () => sessions.delete(transport.sessionId);
        await build().connect(transport);
    }
    await transport.handleRequest(request, response);
}

if (process.argv[2] === undefined) {
    await build().connect(new StdioServerTransport());
} else {
    createServer(answer).listen(Number(process.argv[2]), '127.0.0.1');
}
