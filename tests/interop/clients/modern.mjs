// What the TypeScript client does with the server when there is no session (2026-07-28).

import { basics, cancelled, FANOUT, NOTE, say } from './conversation.mjs';

const LEVEL = 'io.modelcontextprotocol/logLevel';

export async function converseModern(client, call, heard) {
    const tool = (name, args = {}, options = {}) => call({ name, arguments: args }, options);
    const text = async (...args) => (await tool(...args)).content[0].text;
    await basics(client, tool, text);
    await tool('chatter');
    say('no logs', { logs: heard.logs });
    await call({ name: 'chatter', arguments: {}, _meta: { [LEVEL]: 'info' } }, {});
    await heard.until(() => heard.logs.length >= 2);
    say('logs', { logs: heard.logs });
    say('fanout', { text: await text('fanout', { n: FANOUT }), asked: heard.asked, peak: heard.peak });
    say('elicit', { text: await text('book') });
    say('roots', { text: await text('places') });
    const prompt = await client.getPrompt({ name: 'toast', arguments: {} });
    say('asking prompt', { text: prompt.messages[0].content.text });
    say('asking resource', { text: (await client.readResource({ uri: 'note://poem' })).contents[0].text });
    await listen(client, tool, heard);
    await tool('late_error').catch(({ code, message }) => say('late error', { code, message }));
    await cancelled(tool);
    say('hung', { text: await text('hung') });
    const calls = Array.from({ length: 20 }, (_, i) => text('slow', { seconds: 0.6, text: `call ${i}` }));
    say('parallel', { texts: await Promise.all(calls) });
}

// Hear of a resource, then of the tools.
async function listen(client, tool, heard) {
    const events = [];
    client.setNotificationHandler('notifications/resources/updated', note => void events.push(note.params.uri));
    client.setNotificationHandler('notifications/tools/list_changed', () => void events.push('tools'));
    const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [NOTE] });
    const { toolsListChanged: tools, resourceSubscriptions: uris } = subscription.honoredFilter;
    say('honoured', { tools, uris });
    await tool('touch');
    await heard.until(() => events.length >= 1);
    await tool('learn');
    await heard.until(() => events.length >= 2);
    await subscription.close();
    say('heard', { events });
}
