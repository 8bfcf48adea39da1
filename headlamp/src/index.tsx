import {
  DetailsViewSectionProps,
  registerDetailsViewSection,
  registerPluginSettings,
} from '@kinvolk/headlamp-plugin/lib';
import { pluginName } from './kept';
import { NodeSection } from './Node';
import { PodSection } from './Pod';
import { ServiceSection } from './Service';
import { Settings } from './Settings';

registerDetailsViewSection(({ resource }: DetailsViewSectionProps) => {
  const { name, namespace = '', uid } = resource?.metadata ?? {};
  if (!name) {
    return null;
  }
  switch (resource.kind) {
    case 'Service':
      return <ServiceSection key={uid} namespace={namespace} name={name} uid={uid} />;
    case 'Pod':
      return <PodSection key={uid} namespace={namespace} name={name} uid={uid} />;
    case 'Node':
      return <NodeSection key={uid} name={name} uid={uid} />;
  }
  return null;
});

registerPluginSettings(pluginName, Settings, false);
