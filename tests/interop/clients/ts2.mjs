// The client of @modelcontextprotocol/client 2.x, told to shake hands (`legacy`) or left to find out (`auto`).

import { capabilities, config, converse, Heard, require, say } from './conversation.mjs';
import { converseModern } from './modern.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const heard = new Heard();
const options = { capabilities, versionNegotiation: { mode: config.mode } };
const client = new Client({ name: 'ts2', version: '1' }, options);
client.setRequestHandler('sampling/createMessage', request => heard.sample(request));
client.setRequestHandler('elicitation/create', request => heard.elicit(request));
client.setRequestHandler('roots/list', () => heard.roots());
client.setNotificationHandler('notifications/message', note => heard.log(note));
client.setNotificationHandler('notifications/resources/updated', note => heard.update(note));

const [command, ...args] = config.command ?? [];
const transport = config.url
    ? new StreamableHTTPClientTransport(new URL(config.url))
    : new StdioClientTransport({ command, args, env: config.env });
await client.connect(transport);
say('connected', { version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion, server: client.getServerVersion().name });
const call = (params, options) => client.callTool(params, options);
await (config.talk === 'modern' ? converseModern : converse)(client, call, heard);
await transport.terminateSession?.();
await client.close();
say('closed');
