// The address: `?model=…&user=…#try`, `#operate` or `#pipelines`, with the context of the rankings and the open pipeline.
// The views are links, so the back button returns to the other.

import { byId } from './dom.js';

const TITLES = { try: 'Try it', operate: 'Operate', pipelines: 'Pipelines' };

/** The view of the address; the first one where it names none. */
export const view = () => (location.hash.slice(1) in TITLES ? location.hash.slice(1) : 'try');

/** The words of a view's tab. */
export const titleOf = (name) => TITLES[name];

/** The model, user, context and pipeline that the address asks for, or null. */
export function asked() {
  const wanted = new URLSearchParams(location.search);
  return {
    model: wanted.get('model'),
    user: wanted.get('user'),
    context: contextIn(wanted.get('context')),
    pipeline: wanted.get('pipeline'),
  };
}

/** A context as JSON; null for what is no object. */
function contextIn(text) {
  try {
    const context = JSON.parse(text);
    return typeof context === 'object' && !Array.isArray(context) ? context : null;
  } catch {
    return null;
  }
}

/** A link to a view of this page. What is null or left out is not in it. */
export function linkTo(to, { model = null, user = null, context = null, pipeline = null }) {
  const parts = { model, user, context: context === null ? null : JSON.stringify(context), pipeline };
  return `?${new URLSearchParams(Object.entries(parts).filter(([, value]) => value !== null))}#${to}`;
}

/** Puts what is shown into the address, without an entry in the history. */
export function remember(shown) {
  history.replaceState(null, '', linkTo(view(), shown));
}

/** Shows the view of the address, and calls `changed(view)` whenever it becomes another. */
export function follow(changed) {
  const show = () => {
    const now = view();
    for (const name of Object.keys(TITLES)) {
      byId(`view-${name}`).hidden = name !== now;
      const tab = byId(`tab-${name}`);
      if (name === now) tab.setAttribute('aria-current', 'page');
      else tab.removeAttribute('aria-current');
    }
    document.body.dataset.view = now;
    document.title = `${TITLES[now]} · Celeris`;
    byId('skip').href = `#view-${now}`;
  };
  addEventListener('hashchange', () => {
    const before = document.body.dataset.view;
    show();
    if (view() === before) return;
    scrollTo(0, 0);
    changed(view());
  });
  // The fragment names the view, so the skip link moves the focus without changing it.
  byId('skip').addEventListener('click', (event) => {
    event.preventDefault();
    byId(`view-${view()}`).focus();
  });
  show();
}
