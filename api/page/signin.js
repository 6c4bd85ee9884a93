// Sign-in at the identity provider of the node: authorization code with PKCE (RFC 7636). The browser goes to the provider and
// comes back with a code, for which the node gets a token; the page keeps that as it keeps a key.

import { byId } from './dom.js';

const STORED = 'celeris-sign-in';
const PATH = '/page/sign-in';

const base64url = (bytes) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** Where the provider sends the browser back to. */
const redirect = () => `${location.origin}/`;

/** Shows the button if the node has a provider that the page can sign in at. */
export async function offerSignIn() {
  // Without a secure context, as on http://10.0.0.1, a browser hashes nothing.
  const asked = crypto.subtle === undefined ? null : await fetch(PATH).catch(() => null);
  const provider = asked?.ok ? await asked.json().catch(() => null) : null;
  byId('login-provider').hidden = provider === null;
  byId('login-sign-in').onclick = () => leaveFor(provider);
}

async function leaveFor({ authorize, client_id: client, scopes }) {
  const [verifier, state] = [random(), random()];
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
  // The address has what is shown; it is put back after the sign-in.
  sessionStorage.setItem(STORED, JSON.stringify({ verifier, state, back: location.search + location.hash }));
  const to = new URL(authorize);
  const asked = {
    response_type: 'code',
    client_id: client,
    redirect_uri: redirect(),
    scope: scopes,
    state,
    code_challenge: base64url(new Uint8Array(hash)),
    code_challenge_method: 'S256',
  };
  Object.entries(asked).forEach(([name, value]) => to.searchParams.set(name, value));
  location.assign(to);
}

/**
 * After the return from the provider: calls `store(token)` and opens the page where the user has left it. Throws what the
 * provider or the node says otherwise.
 */
export async function completeSignIn(store) {
  const stored = sessionStorage.getItem(STORED);
  const brought = new URLSearchParams(location.search);
  if (stored === null || !brought.has('state')) return;
  sessionStorage.removeItem(STORED);
  const { verifier, state, back } = JSON.parse(stored);
  // The code must not stay in the address, where others may see it later.
  history.replaceState(null, '', `${location.pathname}${back}`);
  // Another page may have sent the browser here with a code of its own.
  if (brought.get('state') !== state) return;
  if (!brought.has('code')) {
    const detail = brought.get('error_description') ?? brought.get('error') ?? 'It has sent no code.';
    throw Object.assign(new Error(detail), { title: 'The identity provider did not sign you in', detail });
  }
  const body = JSON.stringify({ code: brought.get('code'), verifier, redirect: redirect() });
  const reply = await fetch(PATH, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  const told = await reply.json().catch(() => null);
  if (!reply.ok) {
    const detail = told?.detail ?? reply.statusText;
    throw Object.assign(new Error(detail), { title: told?.title ?? 'The sign-in failed', detail });
  }
  store(told.token);
  // The address has changed in its fragment only, which loads no page.
  location.reload();
  await new Promise(() => null);
}
