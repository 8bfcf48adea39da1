import { ConfigStore } from '@kinvolk/headlamp-plugin/lib';

/** The name of the plugin, and of its settings. */
export const pluginName = 'vicinity';

interface Kept {
  /** The address that the console has printed. */
  address?: string;
}

const store = new ConfigStore<Kept>(pluginName);

/** The address that is kept, as a value that components follow. */
export const useKept = store.useConfig();

export function keepAddress(address: string) {
  store.set({ address });
}
