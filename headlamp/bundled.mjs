// Fails if the script of the plugin has code of other packages: their licences would have to come
// with it. Headlamp itself brings React and the components of its pages.
import * as MuiMaterial from '@mui/material';
import { readFileSync } from 'fs';
import React from 'react';
import { renderToString } from 'react-dom/server';
import * as ReactJSX from 'react/jsx-runtime';
import { build, loadConfigFromFile } from 'vite';

const { config } = await loadConfigFromFile(
  { command: 'build', mode: 'production' },
  'node_modules/@kinvolk/headlamp-plugin/config/vite.config.mjs'
);
const built = await build({
  ...config,
  configFile: false,
  logLevel: 'error',
  build: { ...config.build, write: false },
});
const modules = [built]
  .flat()
  .flatMap(({ output }) => output)
  .flatMap(({ modules }) => Object.entries(modules ?? {}))
  .filter(([, { renderedLength }]) => renderedLength > 0)
  .map(([id]) => id);
const own = modules.filter(id => id.startsWith(`${process.cwd()}/src/`));
const others = modules.filter(id => !own.includes(id));
if (own.length === 0 || others.length > 0) {
  console.error('The plugin must be made of its own files alone. It has:', own, 'and of others:', others);
  process.exit(1);
}
console.log(`The plugin is made of ${own.length} files of its own and of no other package.`);

// The script is run as Headlamp runs it, with what plugins are given there as a global.
const registered = { sections: [], settings: [] };
globalThis.pluginLib = {
  React,
  ReactJSX,
  MuiMaterial,
  CommonComponents: { SectionBox: ({ title, children }) => React.createElement('section', { title }, children) },
  ConfigStore: class {
    useConfig = () => () => ({});
  },
  registerDetailsViewSection: section => registered.sections.push(section),
  registerPluginSettings: (...given) => registered.settings.push(given),
};
globalThis.window = { location: { origin: 'http://localhost:4466' } };
new Function(readFileSync('dist/main.js', 'utf8'))();
const [[name, Settings]] = registered.settings;
const pages = ['Service', 'Pod', 'Node']
  .map(kind => registered.sections[0]({ resource: { kind, metadata: { namespace: 'a', name: 'b', uid: 'c' } } }))
  .concat(React.createElement(Settings));
const texts = pages.map(page => renderToString(page));
if (
  name !== JSON.parse(readFileSync('package.json', 'utf8')).name ||
  !texts.slice(0, 3).every(text => text.includes('<section title="Vicinity">')) ||
  !texts[3].includes('--allow-origin http://localhost:4466')
) {
  console.error('The script does not show what it should:', name, texts);
  process.exit(1);
}
console.log('The script shows its sections and settings.');
